/**
 * Galata's fixtures on a stack of our own. They are imported file by file: the
 * package's index also loads its benchmark reporter, with vega and stdlib.
 */
import { galata } from '@jupyterlab/galata/lib/galata';
import { test as base } from '@jupyterlab/galata/lib/fixtures';
import type { IJupyterLabPageFixture } from '@jupyterlab/galata/lib/jupyterlabpage';
import type { BrowserContext } from '@playwright/test';
import { GpuPage, type Application } from './gpuPage';
import { Stack } from './stack';

export { expect } from '@playwright/test';

interface IWorker {
  /** Options of `gpupool lab` for the stack of a file's tests. */
  stackOptions: string[];
  stack: Stack;
  /** Shared by all tests of a worker: scripts are loaded once and then come from the browser's cache. */
  sharedContext: BrowserContext;
}

interface ITest {
  page: IJupyterLabPageFixture;
  application: Application;
  /** The page in the words of these tests; a failure of ours in its console fails the test. */
  gpu: GpuPage;
}

export const test = base.extend<ITest, IWorker>({
  stackOptions: [[], { option: true, scope: 'worker' }],
  application: ['JupyterLab', { option: true }],

  stack: [
    async ({ stackOptions }, use) => {
      const stack = await Stack.start(...stackOptions);
      await use(stack);
      await stack.stop();
    },
    { scope: 'worker', timeout: 150_000 }
  ],
  sharedContext: [
    async ({ browser, stack }, use) => {
      const context = await browser.newContext({
        baseURL: stack.url,
        viewport: { width: 1200, height: 860 }
      });
      await context.request.get(stack.login);
      // The first load fills the browser's cache, on whatever machine this is.
      const first = await context.newPage();
      await first.goto('lab?reset', { timeout: 120_000 });
      await first
        .locator('#jupyterlab-splash')
        .waitFor({ state: 'detached', timeout: 120_000 });
      await first.close();
      await use(context);
      await context.close();
    },
    { scope: 'worker', timeout: 250_000 }
  ],

  baseURL: async ({ stack }, use) => use(stack.url),
  context: async ({ sharedContext }, use) => use(sharedContext),
  request: async ({ playwright, stack }, use) => {
    const request = await playwright.request.newContext({
      baseURL: stack.url,
      extraHTTPHeaders: stack.headers
    });
    await use(request);
    await request.dispose();
  },

  // Notebooks lie in the stack's own folder, and all kernels end after each test.
  autoGoto: false,
  tmpPath: '',
  kernels: null,
  sessions: null,
  terminals: null,
  mockSettings: galata.DEFAULT_SETTINGS,
  waitForApplication: async ({}, use) =>
    use(async page => {
      await page.locator('#jupyterlab-splash').waitFor({ state: 'detached' });
    }),

  gpu: async ({ page, stack, application }, use) => {
    // Galata gives a page 15 s to start, less than a busy machine may need.
    Object.assign(page, {
      waitForAppStarted: async () => {
        await page.waitForFunction(
          () => 'jupyterapp' in window && 'galata' in window,
          undefined,
          { timeout: 60_000 }
        );
        await page.evaluate(() => window.jupyterapp.started);
      }
    });
    const gpu = new GpuPage(page, stack, application);
    await use(gpu);
    await page.close();
    await stack.shutKernelsDown();
    gpu.noErrors();
  }
});
