/** Commands of the dashboard. */
export namespace DashboardCommandIDs {
  export const open = 'gpupool:open-dashboard';
  export const copyLink = 'gpupool:copy-dashboard-link';
  export const drain = 'gpupool:drain';
  export const setQuota = 'gpupool:set-quota';
}

/** Key of the widget in the saved layout. */
export const DASHBOARD_ID = 'gpupool-dashboard';
