-- Reads the lease of a load: its token, further text and ms left; nil if there is none, or if it has an earlier generation.
-- If the key holds another value: nil and {-1, what}.
local function read_load(key, generation)
  local value = redis.pcall('GET', key)
  if not value then return nil end
  local token, stored, _, details, left = read_value(key, value, 'load')
  if not token then return nil, stored end
  if stored ~= generation then return nil end
  return token, details, left
end
