/** Names of the commands; other packages may call them. */
export namespace CommandIDs {
  export const attach = 'gpupool:attach';
  export const attachWith = 'gpupool:attach-with';
  export const detach = 'gpupool:detach';
  export const reset = 'gpupool:reset';
  export const keep = 'gpupool:keep';
  export const resize = 'gpupool:resize';
  export const cancelQueue = 'gpupool:cancel-queue';
  export const take = 'gpupool:take';
  export const undo = 'gpupool:undo';
  export const setIdle = 'gpupool:set-idle';
  export const releaseAll = 'gpupool:release-all';
  export const menu = 'gpupool:menu';
  export const openSidebar = 'gpupool:open-sidebar';
  export const openDashboard = 'gpupool:open-dashboard';
  export const startPool = 'gpupool:start-pool';
  export const refresh = 'gpupool:refresh';
}
