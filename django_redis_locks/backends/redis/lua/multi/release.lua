-- Deletes those locks that are held with their tokens, and grants each of them to the process that has waited longest. The first
-- write is DEL, which a server at maxmemory allows.
--
-- uses is_owned now_ms next_fence grant_next
-- KEYS  fence counter, locks, the waiters of each lock, index
-- ARGV  token of each lock
-- returns  for each lock: 0 not held with this token, 1 freed, 2 granted to a waiter
local counter, last = KEYS[1], #ARGV - 1
local index = KEYS[4 + 2 * last]
local replies = {}
for n = 0, last do
  local lock, waiters = KEYS[2 + n], KEYS[3 + last + n]
  local owned, denied = is_owned(redis.pcall('GET', lock), ARGV[1 + n])
  if denied then return denied end
  replies[1 + n] = owned and 1 or 0
  if owned then
    redis.call('DEL', lock)
    if index then redis.call('ZREM', index, lock) end
    if grant_next(lock, waiters, counter, index) then replies[1 + n] = 2 end
  end
end
return replies
