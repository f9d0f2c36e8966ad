-- Adds a hold to the state and to the keys of the permits. ``mark``: '*' until a request claims it, as for a lock.
local function add_hold(lock, ends, state, kind, limit, permits, token, fence, mark, since, holder, at)
  if holder ~= '' then holder = ' ' .. holder end
  redis.call('HSET', lock, token, permits .. ' ' .. fence .. mark .. since .. holder)
  redis.call('ZADD', ends, at, token)
  state.kind, state.limit, state.used = kind, limit_of(state, limit), state.used + permits
end
