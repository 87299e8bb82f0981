; Invoke and landingpad with a personality and type information of libstdc++'s, resume,
; and a cleanup that makes a first call.
; link: -lstdc++
; levels: O0
; gate: C
target triple = "x86_64-unknown-linux-gnu"

@_ZTIi = external constant ptr
@caught = private constant [11 x i8] c"caught %d\0A\00"
@cleanup = private constant [8 x i8] c"cleanup\00"

declare i32 @printf(ptr, ...)
declare i32 @puts(ptr)
declare i32 @__gxx_personality_v0(...)
declare ptr @__cxa_allocate_exception(i64)
declare void @__cxa_throw(ptr, ptr, ptr)
declare ptr @__cxa_begin_catch(ptr)
declare void @__cxa_end_catch()
declare i32 @llvm.eh.typeid.for.p0(ptr)

define internal void @thrower(i32 %value) uwtable {
  %exception = call ptr @__cxa_allocate_exception(i64 4)
  store i32 %value, ptr %exception
  call void @__cxa_throw(ptr %exception, ptr @_ZTIi, ptr null)
  unreachable
}

define internal void @clean() uwtable {
  call i32 @puts(ptr @cleanup)
  ret void
}

define internal void @middle(i32 %value) uwtable personality ptr @__gxx_personality_v0 {
  invoke void @thrower(i32 %value) to label %normal unwind label %pad
normal:
  ret void
pad:
  %landed = landingpad { ptr, i32 } cleanup
  call void @clean()
  resume { ptr, i32 } %landed
}

define i32 @main() uwtable personality ptr @__gxx_personality_v0 {
  invoke void @middle(i32 42) to label %normal unwind label %pad
normal:
  ret i32 1
pad:
  %landed = landingpad { ptr, i32 } catch ptr @_ZTIi
  %selector = extractvalue { ptr, i32 } %landed, 1
  %wanted = call i32 @llvm.eh.typeid.for.p0(ptr @_ZTIi)
  %match = icmp eq i32 %selector, %wanted
  br i1 %match, label %handle, label %other
handle:
  %pointer = extractvalue { ptr, i32 } %landed, 0
  %object = call ptr @__cxa_begin_catch(ptr %pointer)
  %value = load i32, ptr %object
  call void @__cxa_end_catch()
  call i32 (ptr, ...) @printf(ptr @caught, i32 %value)
  ret i32 0
other:
  resume { ptr, i32 } %landed
}
