-- Deletes the lock whoever holds it, or only the hold with one fence. Only ever a lock: another thing under the key
-- stays. A lock without expiry, which nothing else can free, may be freed so.
--
-- uses wake
-- KEYS  lock, waiters, index
-- ARGV  fence ('': any)
-- returns  0 nothing to free, 1 freed, 2 freed and another process was told
local value = redis.pcall('GET', KEYS[1])
if not value then return 0 end
if value.err then
  if string.find(value.err, 'WRONGTYPE') then return 0 end
  return value -- a right is missing
end
local fence = string.match(value, '^1 lock %S+ (%d+)')
if not fence or (ARGV[1] ~= '' and ARGV[1] ~= fence) then return 0 end
redis.call('DEL', KEYS[1])
if KEYS[3] then redis.call('ZREM', KEYS[3], KEYS[1]) end
return wake(KEYS[1], KEYS[2]) and 2 or 1
