-- Deletes the lock, or only the hold with a given fence, and grants it to the process that has waited longest; or deletes a
-- record that an index lists, usually that of a job. Does not delete other values. Also deletes a lock without expiry, which
-- nothing else can free. Notifies all processes, so that the holder checks its hold at once, and waiters for a change read
-- the record.
--
-- While fences are reserved (a + follows the stored one), the lock may have been handed over locally and have one of the
-- $RESERVED_FENCES after it. Then a message asks all processes, and the holder's process stores its fence. A granted lock that
-- no request has claimed (a * follows) is never handed over.
--
-- uses wake wake_all record_index now_ms next_fence grant_next
-- KEYS  lock, waiters, fence counter, index of what is held, index of what is queued
-- ARGV  fence ('': any), channel of all processes, 1 to ask for a reserved fence
-- returns  0 nothing to free, 1 freed, 2 granted to a waiter, 3 the processes were asked for the fence
local lock, fence, channel = KEYS[1], ARGV[1], ARGV[2]
local value = redis.pcall('GET', lock)
if not value then return 0 end
if value.err then
  if string.find(value.err, 'WRONGTYPE') then return 0 end
  return value -- the user may not read it
end
local message = 'look ' .. lock
local nonce, version = string.match(value, '^1 record (%S+%.%l+) (%d+)')
if nonce then
  if fence ~= '' and fence ~= version then return 0 end
  redis.call('DEL', lock)
  local index = record_index(nonce, KEYS[4], KEYS[5])
  if index then redis.call('ZREM', index, lock) end
  redis.pcall('$PUBLISH', channel, message)
  wake_all(lock, KEYS[2])
  return 1
end
local stored, reserved = string.match(value, '^1 lock %S+ (%d+)([+*]?)')
if not stored then return 0 end
if fence ~= '' then
  local fences_ahead = fence - stored
  if reserved == '+' and fences_ahead >= 0 and fences_ahead <= $RESERVED_FENCES and ARGV[3] == '1' then
    redis.pcall('$PUBLISH', channel, message)
    return 3
  end
  if fences_ahead ~= 0 then return 0 end
end
redis.call('DEL', lock)
if KEYS[4] then redis.call('ZREM', KEYS[4], lock) end
redis.pcall('$PUBLISH', channel, message)
return grant_next(lock, KEYS[2], KEYS[3], KEYS[4]) and 2 or 1
