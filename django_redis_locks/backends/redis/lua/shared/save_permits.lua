-- Writes the state of the permits after a step has changed it. Without a hold the keys are deleted, but for a set limit. The keys
-- and the entry of the index end with the last lease that was given, a set limit $SET_LIMIT_RETENTION ms later than now.
local function save_permits(lock, ends, index, state, now)
  if state.used == 0 and not state.set then
    if not state.deleted then redis.call('DEL', lock, ends) end
    if index then redis.call('ZREM', index, lock) end
    return
  end
  local fields, times = state.fields, state.used > 0 and state.first .. ' ' .. state.last or '0 0'
  fields[#fields + 1] = 'permits'
  fields[#fields + 1] = '1 ' .. state.kind .. ' ' .. (state.limit or 0) .. ' ' .. (state.set or 0) .. ' ' .. state.used .. ' ' .. times
  redis.call('HSET', lock, unpack(fields))
  if state.used == 0 then
    redis.call('PEXPIRE', lock, $SET_LIMIT_RETENTION)
    if index then redis.call('ZREM', index, lock) end
  elseif state.extended then
    local left = state.last - now
    redis.call('PEXPIRE', ends, left)
    redis.call('PEXPIRE', lock, state.set and math.max(left, $SET_LIMIT_RETENTION) or left)
    if index then redis.call('ZADD', index, state.last, lock) end
  end
end
