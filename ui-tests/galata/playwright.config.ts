import { defineConfig } from '@playwright/test';

/** Debian's Chromium; no sandbox because tests may run as root in a container. */
const CHROMIUM = process.env.CHROMIUM_PATH ?? '/usr/bin/chromium';

export default defineConfig({
  testDir: 'tests',
  outputDir: '../../test-results/galata',
  snapshotPathTemplate: '{testDir}/../snapshots/{arg}{ext}',
  // A file has a stack (pool, node, workers, JupyterLab) and one browser to itself.
  fullyParallel: false,
  // The file that waits the longest begins first, or all would wait for it in the end.
  projects: [
    { name: 'idle', testMatch: 'idle.spec.ts' },
    { name: 'page', testIgnore: 'idle.spec.ts' }
  ],
  workers: Number(process.env.BROWSER_JOBS ?? 2),
  // These tests wait for real timers on whatever machine this is, as the Python ones do.
  retries: 1,
  reporter: 'list',
  timeout: 120_000,
  expect: {
    // The page polls each 2 s; one slow answer on a loaded machine is no failure.
    timeout: 20_000,
    toHaveScreenshot: {
      animations: 'disabled',
      caret: 'hide',
      maxDiffPixelRatio: 0.01
    }
  },
  use: {
    actionTimeout: 20_000,
    navigationTimeout: 60_000,
    screenshot: 'only-on-failure',
    trace: 'off',
    video: 'off',
    viewport: { width: 1200, height: 860 },
    launchOptions: {
      executablePath: CHROMIUM,
      args: [
        '--no-sandbox',
        '--disable-gpu',
        '--disable-quic',
        '--no-first-run',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
        '--font-render-hinting=none'
      ]
    }
  }
});
