source_filename = "shapes.c"
target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"
%struct.point = type { i32, i32, i8, ptr }

@total = internal global i32 0, align 4, !dbg !0
@__const.middle.row = private unnamed_addr constant [3 x i32] [i32 7, i32 8, i32 9], align 4
@__const.main.p = private unnamed_addr constant { i32, i32, i8, [7 x i8], ptr } { i32 1, i32 2, i8 5, [7 x i8] zeroinitializer, ptr null }, align 8
@.str = private unnamed_addr constant [4 x i8] c"one\00", align 1, !dbg !11

define dso_local i32 @lowest_of_all(i32 noundef %0, i32 noundef %1) #0 !dbg !26 {
  %3 = alloca i32, align 4
  %4 = alloca i32, align 4
  %5 = alloca i32, align 4
  %6 = alloca i32, align 4
  store i32 %0, ptr %3, align 4
    #dbg_declare(ptr %3, !30, !DIExpression(), !31)
  store i32 %1, ptr %4, align 4
    #dbg_declare(ptr %4, !32, !DIExpression(), !33)
    #dbg_declare(ptr %5, !34, !DIExpression(), !35)
  %7 = load i32, ptr %3, align 4, !dbg !36
  %8 = load i32, ptr %4, align 4, !dbg !37
  %9 = add nsw i32 %7, %8, !dbg !38
  store i32 %9, ptr %5, align 4, !dbg !35
    #dbg_declare(ptr %6, !39, !DIExpression(), !41)
  %10 = load i32, ptr %3, align 4, !dbg !42
  %11 = mul nsw i32 %10, 100, !dbg !43
  store i32 %11, ptr %6, align 4, !dbg !41
  %12 = load i32, ptr %6, align 4, !dbg !44
  %13 = load i32, ptr @total, align 4, !dbg !45
  %14 = add nsw i32 %13, %12, !dbg !45
  store i32 %14, ptr @total, align 4, !dbg !45
  %15 = load i32, ptr %5, align 4, !dbg !46
  ret i32 %15, !dbg !47
}

define dso_local i32 @middle(ptr noundef %0, i32 noundef %1, ptr noundef %2) #0 !dbg !48 {
  %4 = alloca ptr, align 8
  %5 = alloca i32, align 4
  %6 = alloca ptr, align 8
  %7 = alloca [3 x i32], align 4
  %8 = alloca i32, align 4
  store ptr %0, ptr %4, align 8
    #dbg_declare(ptr %4, !60, !DIExpression(), !61)
  store i32 %1, ptr %5, align 4
    #dbg_declare(ptr %5, !62, !DIExpression(), !63)
  store ptr %2, ptr %6, align 8
    #dbg_declare(ptr %6, !64, !DIExpression(), !65)
    #dbg_declare(ptr %7, !66, !DIExpression(), !70)
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %7, ptr align 4 @__const.middle.row, i64 12, i1 false), !dbg !70
    #dbg_declare(ptr %8, !71, !DIExpression(), !72)
  %9 = load ptr, ptr %4, align 8, !dbg !73
  %10 = getelementptr inbounds nuw %struct.point, ptr %9, i32 0, i32 0, !dbg !74
  %11 = load i32, ptr %10, align 8, !dbg !74
  %12 = sub nsw i32 %11, 1, !dbg !75
  %13 = load ptr, ptr %4, align 8, !dbg !76
  %14 = getelementptr inbounds nuw %struct.point, ptr %13, i32 0, i32 1, !dbg !77
  %15 = load i32, ptr %14, align 4, !dbg !77
  %16 = call i32 @lowest_of_all(i32 noundef %12, i32 noundef %15), !dbg !78
  store i32 %16, ptr %8, align 4, !dbg !72
  %17 = load i32, ptr %8, align 4, !dbg !79
  %18 = getelementptr inbounds [3 x i32], ptr %7, i64 0, i64 1, !dbg !80
  %19 = load i32, ptr %18, align 4, !dbg !80
  %20 = add nsw i32 %17, %19, !dbg !81
  %21 = load i32, ptr %5, align 4, !dbg !82
  %22 = add i32 %20, %21, !dbg !83
  %23 = load ptr, ptr %6, align 8, !dbg !84
  %24 = getelementptr inbounds i8, ptr %23, i64 0, !dbg !84
  %25 = load i8, ptr %24, align 1, !dbg !84
  %26 = sext i8 %25 to i32, !dbg !84
  %27 = icmp eq i32 %26, 120, !dbg !85
  %28 = zext i1 %27 to i32, !dbg !85
  %29 = add i32 %22, %28, !dbg !86
  ret i32 %29, !dbg !87
}

declare void @llvm.memcpy.p0.p0.i64(ptr noalias writeonly captures(none), ptr noalias readonly captures(none), i64, i1 immarg)

define dso_local i32 @main(i32 noundef %0, ptr noundef %1) #0 !dbg !88 {
  %3 = alloca i32, align 4
  %4 = alloca i32, align 4
  %5 = alloca ptr, align 8
  %6 = alloca %struct.point, align 8
  %7 = alloca i32, align 4
  %8 = alloca i32, align 4
  store i32 0, ptr %3, align 4
  store i32 %0, ptr %4, align 4
    #dbg_declare(ptr %4, !93, !DIExpression(), !94)
  store ptr %1, ptr %5, align 8
    #dbg_declare(ptr %5, !95, !DIExpression(), !96)
    #dbg_declare(ptr %6, !97, !DIExpression(), !98)
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %6, ptr align 8 @__const.main.p, i64 24, i1 false), !dbg !98
  %9 = getelementptr inbounds nuw %struct.point, ptr %6, i32 0, i32 3, !dbg !99
  store ptr %6, ptr %9, align 8, !dbg !100
    #dbg_declare(ptr %7, !101, !DIExpression(), !102)
  store i32 0, ptr %7, align 4, !dbg !102
    #dbg_declare(ptr %8, !103, !DIExpression(), !105)
  store i32 0, ptr %8, align 4, !dbg !105
  br label %10, !dbg !106

10:
  %11 = load i32, ptr %8, align 4, !dbg !107
  %12 = icmp slt i32 %11, 3, !dbg !109
  br i1 %12, label %13, label %20, !dbg !110

13:
  %14 = call i32 @middle(ptr noundef %6, i32 noundef 4, ptr noundef @.str), !dbg !111
  %15 = load i32, ptr %7, align 4, !dbg !112
  %16 = add nsw i32 %15, %14, !dbg !112
  store i32 %16, ptr %7, align 4, !dbg !112
  br label %17, !dbg !113

17:
  %18 = load i32, ptr %8, align 4, !dbg !114
  %19 = add nsw i32 %18, 1, !dbg !114
  store i32 %19, ptr %8, align 4, !dbg !114
  br label %10, !dbg !115, !llvm.loop !116

20:
  %21 = load i32, ptr %7, align 4, !dbg !119
  %22 = and i32 %21, 127, !dbg !120
  ret i32 %22, !dbg !121
}

attributes #0 = { noinline nounwind uwtable "frame-pointer"="all" }

!llvm.dbg.cu = !{!2}
!llvm.module.flags = !{!18, !19, !20, !21, !22, !23, !24}

!0 = !DIGlobalVariableExpression(var: !1, expr: !DIExpression())
!1 = distinct !DIGlobalVariable(name: "total", scope: !2, file: !3, line: 3, type: !17, isLocal: true, isDefinition: true)
!2 = distinct !DICompileUnit(language: DW_LANG_C11, file: !3, isOptimized: false, runtimeVersion: 0, emissionKind: FullDebug, enums: !4, globals: !10, splitDebugInlining: false, nameTableKind: None)
!3 = !DIFile(filename: "shapes.c", directory: "/source")
!4 = !{!5}
!5 = !DICompositeType(tag: DW_TAG_enumeration_type, name: "color", file: !3, line: 2, baseType: !6, size: 32, elements: !7)
!6 = !DIBasicType(name: "unsigned int", size: 32, encoding: DW_ATE_unsigned)
!7 = !{!8, !9}
!8 = !DIEnumerator(name: "RED", value: 0)
!9 = !DIEnumerator(name: "GREEN", value: 4)
!10 = !{!11, !0}
!11 = !DIGlobalVariableExpression(var: !12, expr: !DIExpression())
!12 = distinct !DIGlobalVariable(scope: null, file: !3, line: 18, type: !13, isLocal: true, isDefinition: true)
!13 = !DICompositeType(tag: DW_TAG_array_type, baseType: !14, size: 32, elements: !15)
!14 = !DIBasicType(name: "char", size: 8, encoding: DW_ATE_signed_char)
!15 = !{!16}
!16 = !DISubrange(count: 4)
!17 = !DIBasicType(name: "int", size: 32, encoding: DW_ATE_signed)
!18 = !{i32 7, !"Dwarf Version", i32 5}
!19 = !{i32 2, !"Debug Info Version", i32 3}
!20 = !{i32 1, !"wchar_size", i32 4}
!21 = !{i32 8, !"PIC Level", i32 2}
!22 = !{i32 7, !"PIE Level", i32 2}
!23 = !{i32 7, !"uwtable", i32 2}
!24 = !{i32 7, !"frame-pointer", i32 2}
!26 = distinct !DISubprogram(name: "lowest_of_all", scope: !3, file: !3, line: 4, type: !27, scopeLine: 4, flags: DIFlagPrototyped, spFlags: DISPFlagDefinition, unit: !2, retainedNodes: !29)
!27 = !DISubroutineType(types: !28)
!28 = !{!17, !17, !17}
!29 = !{}
!30 = !DILocalVariable(name: "a", arg: 1, scope: !26, file: !3, line: 4, type: !17)
!31 = !DILocation(line: 4, column: 40, scope: !26)
!32 = !DILocalVariable(name: "b", arg: 2, scope: !26, file: !3, line: 4, type: !17)
!33 = !DILocation(line: 4, column: 47, scope: !26)
!34 = !DILocalVariable(name: "sum", scope: !26, file: !3, line: 5, type: !17)
!35 = !DILocation(line: 5, column: 7, scope: !26)
!36 = !DILocation(line: 5, column: 13, scope: !26)
!37 = !DILocation(line: 5, column: 17, scope: !26)
!38 = !DILocation(line: 5, column: 15, scope: !26)
!39 = !DILocalVariable(name: "sum", scope: !40, file: !3, line: 6, type: !17)
!40 = distinct !DILexicalBlock(scope: !26, file: !3, line: 6, column: 3)
!41 = !DILocation(line: 6, column: 9, scope: !40)
!42 = !DILocation(line: 6, column: 15, scope: !40)
!43 = !DILocation(line: 6, column: 17, scope: !40)
!44 = !DILocation(line: 6, column: 33, scope: !40)
!45 = !DILocation(line: 6, column: 30, scope: !40)
!46 = !DILocation(line: 7, column: 10, scope: !26)
!47 = !DILocation(line: 7, column: 3, scope: !26)
!48 = distinct !DISubprogram(name: "middle", scope: !3, file: !3, line: 9, type: !49, scopeLine: 9, flags: DIFlagPrototyped, spFlags: DISPFlagDefinition, unit: !2, retainedNodes: !29)
!49 = !DISubroutineType(types: !50)
!50 = !{!17, !51, !5, !58}
!51 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !52, size: 64)
!52 = distinct !DICompositeType(tag: DW_TAG_structure_type, name: "point", file: !3, line: 1, size: 192, elements: !53)
!53 = !{!54, !55, !56, !57}
!54 = !DIDerivedType(tag: DW_TAG_member, name: "x", scope: !52, file: !3, line: 1, baseType: !17, size: 32)
!55 = !DIDerivedType(tag: DW_TAG_member, name: "y", scope: !52, file: !3, line: 1, baseType: !17, size: 32, offset: 32)
!56 = !DIDerivedType(tag: DW_TAG_member, name: "flag", scope: !52, file: !3, line: 1, baseType: !6, size: 3, offset: 64, flags: DIFlagBitField, extraData: i64 64)
!57 = !DIDerivedType(tag: DW_TAG_member, name: "next", scope: !52, file: !3, line: 1, baseType: !51, size: 64, offset: 128)
!58 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !59, size: 64)
!59 = !DIDerivedType(tag: DW_TAG_const_type, baseType: !14)
!60 = !DILocalVariable(name: "p", arg: 1, scope: !48, file: !3, line: 9, type: !51)
!61 = !DILocation(line: 9, column: 52, scope: !48)
!62 = !DILocalVariable(name: "c", arg: 2, scope: !48, file: !3, line: 9, type: !5)
!63 = !DILocation(line: 9, column: 66, scope: !48)
!64 = !DILocalVariable(name: "name", arg: 3, scope: !48, file: !3, line: 9, type: !58)
!65 = !DILocation(line: 9, column: 81, scope: !48)
!66 = !DILocalVariable(name: "row", scope: !48, file: !3, line: 10, type: !67)
!67 = !DICompositeType(tag: DW_TAG_array_type, baseType: !17, size: 96, elements: !68)
!68 = !{!69}
!69 = !DISubrange(count: 3)
!70 = !DILocation(line: 10, column: 7, scope: !48)
!71 = !DILocalVariable(name: "r", scope: !48, file: !3, line: 11, type: !17)
!72 = !DILocation(line: 11, column: 7, scope: !48)
!73 = !DILocation(line: 11, column: 16, scope: !48)
!74 = !DILocation(line: 11, column: 19, scope: !48)
!75 = !DILocation(line: 11, column: 21, scope: !48)
!76 = !DILocation(line: 11, column: 26, scope: !48)
!77 = !DILocation(line: 11, column: 29, scope: !48)
!78 = !DILocation(line: 11, column: 11, scope: !48)
!79 = !DILocation(line: 12, column: 10, scope: !48)
!80 = !DILocation(line: 12, column: 14, scope: !48)
!81 = !DILocation(line: 12, column: 12, scope: !48)
!82 = !DILocation(line: 12, column: 23, scope: !48)
!83 = !DILocation(line: 12, column: 21, scope: !48)
!84 = !DILocation(line: 12, column: 28, scope: !48)
!85 = !DILocation(line: 12, column: 36, scope: !48)
!86 = !DILocation(line: 12, column: 25, scope: !48)
!87 = !DILocation(line: 12, column: 3, scope: !48)
!88 = distinct !DISubprogram(name: "main", scope: !3, file: !3, line: 14, type: !89, scopeLine: 14, flags: DIFlagPrototyped, spFlags: DISPFlagDefinition, unit: !2, retainedNodes: !29)
!89 = !DISubroutineType(types: !90)
!90 = !{!17, !17, !91}
!91 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !92, size: 64)
!92 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !14, size: 64)
!93 = !DILocalVariable(name: "argc", arg: 1, scope: !88, file: !3, line: 14, type: !17)
!94 = !DILocation(line: 14, column: 14, scope: !88)
!95 = !DILocalVariable(name: "argv", arg: 2, scope: !88, file: !3, line: 14, type: !91)
!96 = !DILocation(line: 14, column: 27, scope: !88)
!97 = !DILocalVariable(name: "p", scope: !88, file: !3, line: 15, type: !52)
!98 = !DILocation(line: 15, column: 16, scope: !88)
!99 = !DILocation(line: 16, column: 5, scope: !88)
!100 = !DILocation(line: 16, column: 10, scope: !88)
!101 = !DILocalVariable(name: "r", scope: !88, file: !3, line: 17, type: !17)
!102 = !DILocation(line: 17, column: 7, scope: !88)
!103 = !DILocalVariable(name: "i", scope: !104, file: !3, line: 18, type: !17)
!104 = distinct !DILexicalBlock(scope: !88, file: !3, line: 18, column: 3)
!105 = !DILocation(line: 18, column: 12, scope: !104)
!106 = !DILocation(line: 18, column: 8, scope: !104)
!107 = !DILocation(line: 18, column: 19, scope: !108)
!108 = distinct !DILexicalBlock(scope: !104, file: !3, line: 18, column: 3)
!109 = !DILocation(line: 18, column: 21, scope: !108)
!110 = !DILocation(line: 18, column: 3, scope: !104)
!111 = !DILocation(line: 18, column: 36, scope: !108)
!112 = !DILocation(line: 18, column: 33, scope: !108)
!113 = !DILocation(line: 18, column: 31, scope: !108)
!114 = !DILocation(line: 18, column: 27, scope: !108)
!115 = !DILocation(line: 18, column: 3, scope: !108)
!116 = distinct !{!116, !110, !117, !118}
!117 = !DILocation(line: 18, column: 59, scope: !104)
!118 = !{!"llvm.loop.mustprogress"}
!119 = !DILocation(line: 19, column: 10, scope: !88)
!120 = !DILocation(line: 19, column: 12, scope: !88)
!121 = !DILocation(line: 19, column: 3, scope: !88)
