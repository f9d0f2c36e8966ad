-- Deletes the lock if it is still mine, and tells the process that has waited longest. Who gives an address waits
-- himself, and lines up behind all others. The first write is DEL, which a server at maxmemory allows.
--
-- uses wake line
-- KEYS  lock, waiters, index
-- ARGV  token, and to line up: address, ms to stay in line
-- returns  0 not mine, 1 freed, 2 freed and a process was told
local token = redis.pcall('HGET', KEYS[1], 'token')
if type(token) == 'table' and not string.find(token.err, 'WRONGTYPE') then return token end -- a right is missing
if token ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[3], KEYS[1])
-- before the wake-up: if nobody else waits it is his, since his own release may not hear that it freed the lock
if ARGV[2] then line_up(KEYS[2], ARGV[2], '0', ARGV[3]) end
return wake(KEYS[1], KEYS[2]) and 2 or 1
