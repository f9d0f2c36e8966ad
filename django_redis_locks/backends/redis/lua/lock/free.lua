-- Deletes the lock if it is still mine. The first write is DEL, which a server at maxmemory allows.
--
-- KEYS  lock, index
-- ARGV  token
-- returns  1 freed, 0 not mine
local token = redis.pcall('HGET', KEYS[1], 'token')
if type(token) == 'table' and not string.find(token.err, 'WRONGTYPE') then return token end -- a right is missing
if token ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], KEYS[1])
return 1
