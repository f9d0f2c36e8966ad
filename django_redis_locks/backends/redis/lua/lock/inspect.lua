-- Says who holds the lock.
--
-- KEYS  lock
-- ARGV  kind
-- returns  {} free, else as lock/acquire: {0, ms left, fence, since in ms, holder} or {-1, what}
local left = redis.call('PTTL', KEYS[1])
if left == -2 then return {} end
local type = redis.call('TYPE', KEYS[1])['ok']
if type ~= 'hash' then return {-1, 'a ' .. type} end
local found = redis.call('HMGET', KEYS[1], 'token', 'kind', 'fence', 'since', 'holder')
if found[2] ~= ARGV[1] or not found[1] then
  return {-1, found[2] and 'a lock of kind ' .. found[2] or 'a hash without token'}
end
if left < 0 then return {-1, 'a lock without expiry'} end
return {0, left, found[3], found[4], found[5]}
