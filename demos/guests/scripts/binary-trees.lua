-- Makes and drops many small tables: the collector at work.
local depth = tonumber(arg[1]) or 11

local function make(d)
  if d == 0 then return {} end
  return { make(d - 1), make(d - 1) }
end

local function count(tree)
  if not tree[1] then return 1 end
  return 1 + count(tree[1]) + count(tree[2])
end

print(("stretch %d: %d"):format(depth + 1, count(make(depth + 1))))
local long_lived = make(depth)
for d = 4, depth, 2 do
  local times = 1 << (depth - d + 4)
  local total = 0
  for _ = 1, times do total = total + count(make(d)) end
  print(("%d trees of depth %d: %d"):format(times, d, total))
end
print(("long lived %d: %d"):format(depth, count(long_lived)))
collectgarbage()
local closed = setmetatable({}, { __gc = function() print("finalizer ran") end })
closed = nil
collectgarbage()
