-- Writes the record if it is as the caller knows it, or already as he wants it: a repeated request finds its own nonce.
-- The version is a fence, so that none comes twice. All who wait for a change are told.
--
-- uses wake crowd read record fence
-- KEYS  record, waiters, fence counter
-- ARGV  version that the caller knows (0: absent), nonce, lease in ms, fields
-- returns  {1, version}, or as it is: {0, ms left, version, fields}, {0} if absent, {-1, what}
local record, lease = KEYS[1], ARGV[3]
local now, nonce = look(record)
if now[1] ~= 0 then return now end
if nonce == ARGV[2] then
  if now[2] < tonumber(lease) then redis.call('PEXPIRE', record, lease) end
  return {1, now[3]}
end
if (now[3] or '0') ~= ARGV[1] then return now end
if nonce then redis.call('PEXPIRE', record, lease) end -- at maxmemory only a new record is refused
local version = next_fence(KEYS[3], now[3], redis.call('TIME'), 0)
redis.call('SET', record, '1 record ' .. ARGV[2] .. ' ' .. version .. ' ' .. ARGV[4], 'PX', lease)
wake_all(record, KEYS[2])
return {1, version}
