-- Invalidates a value. The value of a running load is not stored. During the replica lag, in which a replica may return the
-- old data, loaded values are stored only until the end of the lag.
--
-- uses wake wake_all
-- KEYS  lease, waiters, permit, replica lag, and if values are in this store: value
-- ARGV  ms for which the old value may still be served (0: delete it), ms of the replica lag (0: none)
-- returns  1 if there was a value, else 0
redis.call('DEL', KEYS[1], KEYS[3])
local found = 0
if KEYS[5] then
  if ARGV[1] == '0' then
    found = redis.call('DEL', KEYS[5])
  else
    local left = redis.call('PTTL', KEYS[5])
    if left ~= -2 then found = 1 end
    if left == -1 or left > tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[5], ARGV[1]) end
  end
end
if ARGV[2] ~= '0' then redis.call('SET', KEYS[4], '1', 'PX', ARGV[2]) end
wake_all(KEYS[1], KEYS[2])
return found
