-- Deletes the lock whoever holds it, or only the hold with one fence, or one who took that over without asking: he has one
-- of the $RESERVED_FENCES spare fences after it. Only ever a lock, or a record that is listed, a job's as a rule: another thing under
-- the key stays. A lock without expiry, which nothing else can free, may be freed so. All who wait for a change of a record are
-- told.
--
-- uses wake crowd listed
-- KEYS  lock, waiters, index of what is held, index of what is queued
-- ARGV  fence ('': any)
-- returns  0 nothing to free, 1 freed, 2 freed and another process was told
local value = redis.pcall('GET', KEYS[1])
if not value then return 0 end
if value.err then
  if string.find(value.err, 'WRONGTYPE') then return 0 end
  return value -- a right is missing
end
local record, version = string.match(value, '^1 record (%S+%.%l+) (%d+)')
if record then
  if ARGV[1] ~= '' and ARGV[1] ~= version then return 0 end
  redis.call('DEL', KEYS[1])
  local index = index_of(record, KEYS[3], KEYS[4])
  if index then redis.call('ZREM', index, KEYS[1]) end
  wake_all(KEYS[1], KEYS[2])
  return 1
end
local fence = string.match(value, '^1 lock %S+ (%d+)')
if not fence then return 0 end
if ARGV[1] ~= '' then
  local after = ARGV[1] - fence
  if after < 0 or after > $RESERVED_FENCES then return 0 end
end
redis.call('DEL', KEYS[1])
if KEYS[3] then redis.call('ZREM', KEYS[3], KEYS[1]) end
return wake(KEYS[1], KEYS[2]) and 2 or 1
