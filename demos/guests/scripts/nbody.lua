-- The Jovian planets, a symplectic integrator; prints the energy.
local steps = tonumber(arg[1]) or 20000

local pi = math.pi
local solar_mass = 4 * pi * pi
local year = 365.24

local bodies = {
  { 0, 0, 0, 0, 0, 0, solar_mass },
  { 4.84143144246472090e+00, -1.16032004402742839e+00, -1.03622044471123109e-01,
    1.66007664274403694e-03 * year, 7.69901118419740425e-03 * year,
    -6.90460016972063023e-05 * year, 9.54791938424326609e-04 * solar_mass },
  { 8.34336671824457987e+00, 4.12479856412430479e+00, -4.03523417114321381e-01,
    -2.76742510726411899e-03 * year, 4.99852801234917238e-03 * year,
    2.30417297573763929e-05 * year, 2.85885980666130812e-04 * solar_mass },
  { 1.28943695621391310e+01, -1.51111514016986312e+01, -2.23307578892655734e-01,
    2.96460137564761618e-03 * year, 2.37847173959480950e-03 * year,
    -2.96589568540237556e-05 * year, 4.36624404335156298e-05 * solar_mass },
  { 1.53796971148509165e+01, -2.59193146099879641e+01, 1.79258772950371181e-01,
    2.68067772490389322e-03 * year, 1.62824170038242295e-03 * year,
    -9.51592254519715870e-05 * year, 5.15138902046611451e-05 * solar_mass },
}

local function energy()
  local e = 0
  for i, a in ipairs(bodies) do
    e = e + 0.5 * a[7] * (a[4] ^ 2 + a[5] ^ 2 + a[6] ^ 2)
    for j = i + 1, #bodies do
      local b = bodies[j]
      local d = math.sqrt((a[1] - b[1]) ^ 2 + (a[2] - b[2]) ^ 2 + (a[3] - b[3]) ^ 2)
      e = e - a[7] * b[7] / d
    end
  end
  return e
end

local function advance(dt)
  for i = 1, #bodies do
    local a = bodies[i]
    for j = i + 1, #bodies do
      local b = bodies[j]
      local x, y, z = a[1] - b[1], a[2] - b[2], a[3] - b[3]
      local d2 = x * x + y * y + z * z
      local scale = dt / (d2 * math.sqrt(d2))
      for k, v in ipairs { x, y, z } do
        a[3 + k] = a[3 + k] - v * b[7] * scale
        b[3 + k] = b[3 + k] + v * a[7] * scale
      end
    end
  end
  for _, a in ipairs(bodies) do
    for k = 1, 3 do a[k] = a[k] + dt * a[3 + k] end
  end
end

local px, py, pz = 0, 0, 0
for _, b in ipairs(bodies) do
  px, py, pz = px + b[4] * b[7], py + b[5] * b[7], pz + b[6] * b[7]
end
bodies[1][4], bodies[1][5], bodies[1][6] = -px / solar_mass, -py / solar_mass, -pz / solar_mass

print(("%.9f"):format(energy()))
for _ = 1, steps do advance(0.01) end
print(("%.9f"):format(energy()))
