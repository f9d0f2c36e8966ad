-- What lives under the key of a record: nothing ({0}), a record ({0, ms left, version, fields}), or something else
-- ({-1, what}). The nonce of its last write comes second.
local function look(key)
  local left = redis.call('PTTL', key)
  if left == -2 then return {0} end
  local type = redis.call('TYPE', key)['ok']
  if type ~= 'hash' then return {-1, 'a ' .. type} end
  local found = redis.call('HMGET', key, 'kind', 'version', 'fields', 'nonce')
  if found[1] ~= 'record' then return {-1, found[1] and 'a lock of kind ' .. found[1] or 'a hash without kind'} end
  if left < 0 then return {-1, 'a record without expiry'} end
  return {0, left, found[2], found[3]}, found[4]
end
