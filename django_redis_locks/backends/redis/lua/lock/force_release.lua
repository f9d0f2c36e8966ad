-- Deletes any hold of the lock, or only the hold with one fence; or an indexed record, usually of a job. Other values under
-- the key stay. Also deletes a lock without expiry, which nothing else can free. Notifies all processes: the holder confirms
-- its hold at once, and waiters for a change of a record read it.
--
-- While fences are reserved (a + follows the stored one) a later hold of the same process may have one of the $RESERVED_FENCES
-- after it. Then the processes are asked, and the holder writes its fence.
--
-- uses wake wake_all record_index
-- KEYS  lock, waiters, index of what is held, index of what is queued
-- ARGV  fence ('': any), channel of all processes, 1 to ask for a reserved fence
-- returns  0 nothing to free, 1 freed, 2 freed and another process was notified, 3 the processes were asked
local lock, fence, channel = KEYS[1], ARGV[1], ARGV[2]
local value = redis.pcall('GET', lock)
if not value then return 0 end
if value.err then
  if string.find(value.err, 'WRONGTYPE') then return 0 end
  return value -- a right is missing
end
local look = 'look ' .. lock
local record, version = string.match(value, '^1 record (%S+%.%l+) (%d+)')
if record then
  if fence ~= '' and fence ~= version then return 0 end
  redis.call('DEL', lock)
  local index = record_index(record, KEYS[3], KEYS[4])
  if index then redis.call('ZREM', index, lock) end
  redis.pcall('PUBLISH', channel, look)
  wake_all(lock, KEYS[2])
  return 1
end
local stored, reserved = string.match(value, '^1 lock %S+ (%d+)(%+?)')
if not stored then return 0 end
if fence ~= '' then
  local after = fence - stored
  if reserved ~= '' and after >= 0 and after <= $RESERVED_FENCES and ARGV[3] == '1' then
    redis.pcall('PUBLISH', channel, look)
    return 3
  end
  if after ~= 0 then return 0 end
end
redis.call('DEL', lock)
if KEYS[3] then redis.call('ZREM', KEYS[3], lock) end
redis.pcall('PUBLISH', channel, look)
return wake(lock, KEYS[2]) and 2 or 1
