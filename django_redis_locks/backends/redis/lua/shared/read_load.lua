-- Who loads a value: the token of a lease, the generation in which it was given, what else it says, and the ms left. Nil
-- if nobody does, or did so before all values were cleared. If something else lives there, what that is comes second.
local function read_load(key, generation)
  local value = redis.pcall('GET', key)
  if not value then return nil end
  local token, given, _, about, left = read_value(key, value, 'load')
  if not token then return nil, given end
  if given ~= generation then return nil end
  return token, about, left
end
