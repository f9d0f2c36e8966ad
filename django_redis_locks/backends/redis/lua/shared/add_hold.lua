-- Adds a hold to the state, and the end of its lease. ``mark``: '*' until a request claims it, as for a lock.
local function add_hold(ends, state, kind, limit, permits, token, fence, mark, since, holder, at)
  if holder ~= '' then holder = ' ' .. holder end
  local fields = state.fields
  fields[#fields + 1] = token
  fields[#fields + 1] = permits .. ' ' .. fence .. mark .. since .. holder
  redis.call('ZADD', ends, at, token)
  state.kind, state.limit = kind, limit_of(state, limit)
  state.first = state.used > 0 and math.min(state.first, at) or at
  state.last = state.used > 0 and math.max(state.last, at) or at
  state.used, state.extended = state.used + permits, true
end
