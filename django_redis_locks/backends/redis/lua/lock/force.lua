-- Deletes the lock whoever holds it, or only the hold with one fence. Only ever a lock: another thing under the key
-- stays. A lock without expiry, which nothing else can free, may be freed so.
--
-- KEYS  lock, index
-- ARGV  fence ('': any)
-- returns  1 freed, 0 nothing to free
local found = redis.pcall('HMGET', KEYS[1], 'token', 'fence')
if found.err and not string.find(found.err, 'WRONGTYPE') then return found end -- a right is missing
if found.err or not found[1] then return 0 end
if ARGV[1] ~= '' and ARGV[1] ~= found[2] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], KEYS[1])
return 1
