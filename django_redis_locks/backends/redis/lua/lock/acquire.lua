-- Takes the lock if it is absent, or already mine, or was handed to me, and says who has it otherwise.
-- A repeated request gets the answer of the first one: the same fence, a lease that is never shorter.
-- A free lock is refused at maxmemory by the first write; nothing is half done then. One that was handed over can be
-- taken: its first write is PEXPIRE.
-- Who gives an address lines up in the same step: if the lock is somebody else's, or if more of his process wait.
--
-- uses line fence
-- KEYS  lock, waiters, fence counter, index
-- ARGV  token, lease in ms, kind, holder, how long the index remembers in ms (0: no index)
--       and of who waits: token that was handed to me, address, arrival (0: now), 1 if more wait, ms to stay in line
-- returns  {1, fence, 1 if it was free, arrival, 1 if others wait}  granted
--          {0, ms left, fence, since in ms, holder, arrival, 1 if others wait}  somebody else's
--          {-1, what}  no lock of this kind lives under the key
local lock, waiters, counter, index = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, lease, kind, holder, remember = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])
local handed, address = ARGV[6], ARGV[7]

local function stand(waits, arrival)
  if not address then return 0, 0 end
  local since = 0
  if address ~= '' then
    if waits then
      since = line_up(waiters, address, arrival, ARGV[10])
    else
      redis.call('ZREM', waiters, address)
    end
  end
  local others = redis.call('ZCARD', waiters) > (since ~= 0 and 1 or 0)
  return since, others and 1 or 0
end

local function list(time)
  if remember > 0 then
    local now = time[1] * 1000 + math.floor(time[2] / 1000)
    redis.call('ZADD', index, string.format('%.0f', now + lease), lock)
    local old = redis.call('ZRANGEBYSCORE', index, '-inf', string.format('%.0f', now - remember), 'LIMIT', 0, 2)
    if old[1] then redis.call('ZREM', index, unpack(old)) end
  end
end

local free, last = true, 0
local left = redis.call('PTTL', lock)
if left ~= -2 then
  local type = redis.call('TYPE', lock)['ok']
  if type ~= 'hash' then return {-1, 'a ' .. type} end
  local found = redis.call('HMGET', lock, 'token', 'kind', 'fence', 'since', 'holder')
  if found[2] ~= kind or not found[1] then
    return {-1, found[2] and 'a lock of kind ' .. found[2] or 'a hash without token'}
  end
  if left < 0 then return {-1, 'a lock without expiry'} end
  if found[1] == token then
    if left < lease then
      redis.call('PEXPIRE', lock, lease)
      list(redis.call('TIME'))
    end
    return {1, found[3], 0, stand(ARGV[9] == '1', '0')}
  end
  if found[1] ~= handed then
    return {0, left, found[3], found[4], found[5], stand(true, ARGV[8])}
  end
  redis.call('PEXPIRE', lock, lease)
  free, last = false, tonumber(found[3])
end

local time = redis.call('TIME')
local fence = next_fence(counter, last, time)
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('HSET', lock, 'v', 1, 'kind', kind, 'token', token, 'fence', fence, 'since', now)
if holder ~= '' then redis.call('HSET', lock, 'holder', holder) elseif not free then redis.call('HDEL', lock, 'holder') end
if free then redis.call('PEXPIRE', lock, lease) end
list(time)
return {1, fence, free and 1 or 0, stand(ARGV[9] == '1', '0')}
