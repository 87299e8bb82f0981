-- Patterns, formatting, coroutines, sorting with a callback, integer and float.
local words = {}
for word in ("the quick brown fox jumps over the lazy dog"):gmatch("%a+") do
  words[#words + 1] = word
end
table.sort(words, function(a, b)
  if #a ~= #b then return #a > #b end
  return a < b
end)
print(table.concat(words, " "))

local counts = {}
for i = 1, 20000 do
  local key = ("k%03d"):format(i * i % 257)
  counts[key] = (counts[key] or 0) + i
end
local keys = {}
for key in pairs(counts) do keys[#keys + 1] = key end
table.sort(keys)
print(#keys, keys[1], counts[keys[1]], keys[#keys], counts[keys[#keys]])

print((("x"):rep(5, "-")), ("%5.2f|%-6s|%q|%x"):format(3.14159, "ab", "a\nb", 255))
print(("2024-05-06"):match("(%d+)-(%d+)-(%d+)"))
print((("hello world"):gsub("o", { o = "0" })), ("abc"):byte(1, -1))
print(7 // 2, -7 // 2, 7 % -3, 2 ^ 53, 1 << 62, math.maxinteger + 1 == math.mininteger)
print(string.pack("<i4", 100):byte(1, -1))
print(utf8.char(228, 8364, 128512), utf8.len("äöü"))

local function generate(n)
  return coroutine.wrap(function()
    for i = 1, n do coroutine.yield(i * i) end
  end)
end
local sum = 0
for square in generate(1000) do sum = sum + square end
print(sum)

local ok, message = pcall(load, nil)
print(ok, type(message))
print(load("return 1 + 1")())
print(select("#", table.unpack({}, 1, 200)))
print(tostring(nil), tostring(1e15), tostring(-0.0), 10 / 2, 3 | 4, "10" + 5)
