-- Describes a value that is not the expected kind of lock: {-1, what}.
local function describe_value(key)
  local _, found = read_value(key, redis.pcall('GET', key), '')
  return found
end
