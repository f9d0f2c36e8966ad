-- Takes the lock if it is absent or already mine, and says who has it otherwise.
-- A repeated request gets the answer of the first one: the same fence, a lease that is never shorter.
-- The fence is the larger of the server's clock and the counter's successor: it rises although the counter may be gone,
-- or older than the locks it was given to (a restart from a snapshot, a lagging replica).
-- A free lock is refused at maxmemory by the first write; nothing is half done then.
--
-- KEYS  lock, fence counter, index
-- ARGV  token, lease in ms, kind, holder, how long the index remembers in ms (0: no index)
-- returns  {1, fence}  granted
--          {0, ms left, fence, since in ms, holder}  somebody else's
--          {-1, what}  no lock of this kind lives under the key
local lock, counter, index = KEYS[1], KEYS[2], KEYS[3]
local token, lease, kind, holder, remember = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])

local left = redis.call('PTTL', lock)
if left ~= -2 then
  local type = redis.call('TYPE', lock)['ok']
  if type ~= 'hash' then return {-1, 'a ' .. type} end
  local found = redis.call('HMGET', lock, 'token', 'kind', 'fence', 'since', 'holder')
  if not found[1] then return {-1, 'a hash without token'} end
  if found[2] ~= kind then return {-1, 'a lock of kind ' .. (found[2] or '?')} end
  if left < 0 then return {-1, 'a lock without expiry'} end
  if found[1] ~= token then return {0, left, found[3], found[4], found[5]} end
  if left < lease then
    redis.call('PEXPIRE', lock, lease)
    if remember > 0 then
      local time = redis.call('TIME')
      redis.call('ZADD', index, string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) + lease), lock)
    end
  end
  return {1, found[3]}
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last = tonumber(redis.call('GET', counter) or 0) or 0
-- Lua prints numbers with 14 digits; microseconds have 16
local fence = string.format('%.0f', math.max(last + 1, time[1] * 1000000 + time[2]))
redis.call('SET', counter, fence)
redis.call('HSET', lock, 'v', 1, 'kind', kind, 'token', token, 'fence', fence, 'since', string.format('%.0f', now))
if holder ~= '' then redis.call('HSET', lock, 'holder', holder) end
redis.call('PEXPIRE', lock, lease)
if remember > 0 then
  redis.call('ZADD', index, string.format('%.0f', now + lease), lock)
  local old = redis.call('ZRANGEBYSCORE', index, '-inf', string.format('%.0f', now - remember), 'LIMIT', 0, 2)
  if old[1] then redis.call('ZREM', index, unpack(old)) end
end
return {1, fence}
