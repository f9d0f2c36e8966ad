-- Writes the record if it has the expected version. A repeated request finds its own nonce and succeeds.
-- The version is a fence, so it is never reused. Notifies all waiters.
-- The end of the nonce names the index that lists the record. One such write in a hundred removes old entries from the index,
-- at most 200.
--
-- uses wake wake_all read_value read_record next_fence record_index now_ms
-- KEYS  record, waiters, fence counter, index of what is held, index of what is queued
-- ARGV  nonce, expected version (0: absent), lease in ms, fields
-- returns  the version, or the current state: {0, ms left, version, fields}, {0} if absent, {-1, what}
local record, lease = KEYS[1], ARGV[3]
local current, nonce = read_record(record)
if current[1] ~= 0 then return current end
local index = record_index(ARGV[1], KEYS[4], KEYS[5])
if nonce == ARGV[1] then
  if current[2] < tonumber(lease) then
    redis.call('PEXPIRE', record, lease)
    if index then redis.call('ZADD', index, 'XX', now_ms(redis.call('TIME')) + lease, record) end
  end
  return tonumber(current[3])
end
if (current[3] or '0') ~= ARGV[2] then return current end
if nonce then redis.call('PEXPIRE', record, lease) end -- at maxmemory only a new record is refused
local time = redis.call('TIME')
local version, refusal = next_fence(KEYS[3], current[3], time, 0)
if not version then return refusal end
redis.call('SET', record, '1 record ' .. ARGV[1] .. ' ' .. version .. ' ' .. ARGV[4], 'PX', lease)
local before = record_index(nonce, KEYS[4], KEYS[5])
if before and before ~= index then redis.call('ZREM', before, record) end
if index then
  redis.call('ZADD', index, now_ms(time) + lease, record)
  if time[2] % 100 == 0 then
    local ended = now_ms(time) - $INDEX_RETENTION
    local old = redis.call('ZRANGEBYSCORE', index, '-inf', ended, 'LIMIT', 0, 200)
    if old[1] then redis.call('ZREM', index, unpack(old)) end
  end
end
wake_all(record, KEYS[2])
return tonumber(version)
