-- Reads the lease of a load: its token, further text and ms left; nil if there is none, or if it is of an earlier
-- generation. If something else lives under the key, its description comes second.
local function read_load(key, generation)
  local value = redis.pcall('GET', key)
  if not value then return nil end
  local token, given, _, details, left = read_value(key, value, 'load')
  if not token then return nil, given end
  if given ~= generation then return nil end
  return token, details, left
end
