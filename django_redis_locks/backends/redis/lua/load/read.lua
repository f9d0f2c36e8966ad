-- Reads values and their remaining lifetimes.
--
-- KEYS  (values)
-- ARGV  (none)
-- returns  for each value: ms left (-1: no expiry, -2: there is no value), value
local found = {}
for at, key in ipairs(KEYS) do
  local value = redis.call('GET', key)
  found[2 * at - 1] = value and redis.call('PTTL', key) or -2
  found[2 * at] = value
end
return found
