-- Writes the state of the permits after a step has changed it. Without a hold the keys are deleted, but for a set limit.
local function save_permits(lock, ends, index, state, now)
  if state.used > 0 then
    redis.call('HSET', lock, 'kind', '1 ' .. state.kind, 'limit', state.limit, 'used', state.used)
    local last = set_ends(lock, ends, state.set, now)
    if index then redis.call('ZADD', index, last, lock) end
    return
  end
  if state.set then
    redis.call('HDEL', lock, 'limit', 'used')
    redis.call('PEXPIRE', lock, $SET_LIMIT_RETENTION)
  else
    redis.call('DEL', lock)
  end
  if index then redis.call('ZREM', index, lock) end
end
