-- Deletes the lock whoever holds it, or only the hold with one fence. Only ever a lock: another thing under the key
-- stays. A lock without expiry, which nothing else can free, may be freed so.
--
-- uses wake
-- KEYS  lock, waiters, index
-- ARGV  fence ('': any)
-- returns  0 nothing to free, 1 freed, 2 freed and another process was told
local found = redis.pcall('HMGET', KEYS[1], 'token', 'fence')
if found.err and not string.find(found.err, 'WRONGTYPE') then return found end -- a right is missing
if found.err or not found[1] then return 0 end
if ARGV[1] ~= '' and ARGV[1] ~= found[2] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[3], KEYS[1])
return wake(KEYS[1], KEYS[2]) and 2 or 1
