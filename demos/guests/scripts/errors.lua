-- Errors travel by longjmp through C frames.
local function deep(n)
  if n == 0 then error({ code = 42 }) end
  return deep(n - 1) + 1
end
local ok, problem = pcall(deep, 50)
print(ok, problem.code)

print(pcall(string.rep, "x", -1))
print(select(2, pcall(function() local t = nil; return t.x end)))
print(select(2, xpcall(function() return 1 + {} end, function(m) return "handled: " .. m end)))

local log = {}
do
  local closing <close> = setmetatable({}, { __close = function() log[#log + 1] = "closed" end })
  pcall(function()
    local inner <close> = setmetatable({}, { __close = function() log[#log + 1] = "inner" end })
    error("out")
  end)
end
print(table.concat(log, ","))

local worker = coroutine.create(function() error("in a coroutine") end)
print(coroutine.resume(worker))
print(coroutine.status(worker))

-- The C stack limit is reached and survived.
local function nest(n) return (("x"):gsub("x", function() return nest(n + 1) end)) end
print(pcall(nest, 1))
