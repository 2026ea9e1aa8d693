/** An unused GPU: a countdown in every open view, release with a reason, Undo. */
import { expect, test } from '../fixtures';
import { ADD, ADD_AGAIN } from '../programs';

const NOTEBOOK = 'idle.ipynb';

// Warns after 10 s without use and releases 15 s later.
test.use({ stackOptions: ['--idle-seconds', '25', '--warn-seconds', '15'] });

test('warned in each view, released, undone', async ({ gpu, page, stack }) => {
  await gpu.start(NOTEBOOK, ADD, ADD_AGAIN);
  await gpu.attach(NOTEBOOK, '0.2');
  await gpu.runAndWait(0, 'sum 768.0');
  const notification = gpu.notification(`${NOTEBOOK} does not use its GPU`);

  await test.step('a countdown in every open view', async () => {
    await expect(gpu.state(NOTEBOOK)).toHaveText('goes back soon');
    await expect(
      gpu.kernel(NOTEBOOK).getByRole('timer', {
        name: `Time until ${NOTEBOOK} gives its GPU back`
      })
    ).toHaveText(/^0:\d\d$/);
    await expect(
      page.getByRole('button', { name: /^GPU idle: 0:\d\d$/ })
    ).toBeVisible();
    await expect(gpu.toolbarButton).toHaveText(/^0:\d\d$/);
    await expect(notification).toContainText(/gives it back in \d+ s/);
  });

  await test.step('released: why and what was freed, and Undo brings it back', async () => {
    await expect(gpu.state(NOTEBOOK)).toHaveText('no GPU, memory kept', {
      timeout: 60_000
    });
    expect(await stack.freeMilli()).toBe(2000);
    const row = gpu.kernel(NOTEBOOK);
    await expect(row).toContainText(
      /Released after \d+ s without use: 0\.2 of .* is free again; .* kept/
    );
    const released = gpu.notification(`${NOTEBOOK}: `);
    await released.getByRole('button', { name: 'Undo' }).click();
    await expect(gpu.state(NOTEBOOK)).toHaveText('attached');
    await gpu.runAndWait(1, 'sum 1024.0');
  });
});
