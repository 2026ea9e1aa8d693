/** The dashboard in the main area: views, links, tables, what administrators change. */
import { expect, test } from '../fixtures';
import { ADD } from '../programs';

const NOTEBOOK = 'history.ipynb';

test('views, each with a link of its own', async ({ gpu, page, stack }) => {
  await gpu.start(NOTEBOOK, `%%gpu 0.2\n${ADD}`);
  await gpu.runAndWait(0, 'sum 768.0');
  await gpu.choose('GPU Dashboard');
  const dashboard = gpu.dashboard;
  const views = dashboard.getByRole('navigation', { name: 'Views' });

  await test.step('the whole pool: a chart for each figure, and the same as a table', async () => {
    await expect(
      dashboard.getByRole('heading', { name: 'The whole pool' })
    ).toBeVisible();
    for (const figure of [
      'Compute',
      'Memory',
      'Idle waste',
      'Network',
      'Queue'
    ]) {
      await expect(
        dashboard
          .getByRole('region', { name: figure, exact: true })
          .getByRole('img')
      ).toBeVisible();
    }
    await dashboard.getByRole('button', { name: 'Compute as a table' }).click();
    await expect(
      dashboard
        .getByRole('region', { name: 'Compute', exact: true })
        .getByRole('table')
    ).toBeVisible();
  });

  await test.step('by node, user, project and client', async () => {
    for (const [link, heading] of [
      ['Nodes', 'All nodes'],
      ['Users', 'All users'],
      ['Projects', 'All projects'],
      ['Clients', 'Clients'],
      ['Quotas', 'Quotas and nodes']
    ]) {
      await views.getByRole('link', { name: link, exact: true }).click();
      await expect(
        dashboard.getByRole('heading', { name: heading, exact: true, level: 2 })
      ).toBeVisible();
      await expect(
        views.getByRole('link', { name: link, exact: true })
      ).toHaveAttribute('aria-current', 'page');
    }
  });

  await test.step('the address bar tells where one is, a link opens it', async () => {
    await views.getByRole('link', { name: 'Nodes', exact: true }).click();
    await expect(page).toHaveURL(/[?&]gpupool=node/);
    await page.goBack();
    await expect(
      dashboard.getByRole('heading', { name: 'Quotas and nodes', level: 2 })
    ).toBeVisible();
    await page.goto('?reset&gpupool=user');
    await expect(
      dashboard.getByRole('heading', { name: 'All users', level: 2 })
    ).toBeVisible();
    expect(await stack.freeMilli()).toBe(2000);
  });
});

// Who reaches the pool by its socket, as the user of `make lab` does, is an administrator.
test('an administrator changes a quota and drains a node', async ({
  gpu,
  page,
  stack
}) => {
  const [{ node }] = (
    await stack.api<{ devices: { node: string }[] }>('GET', 'gpupool/api/pool')
  ).devices;
  await page.goto('?reset&gpupool=quotas');
  const { dashboard } = gpu;
  const limit = dashboard.getByRole('textbox', {
    name: 'Limit in GPUs of project default'
  });
  const save = dashboard.getByRole('button', { name: 'Save project default' });

  await test.step('what is no number is refused where it was typed', async () => {
    await limit.fill('many');
    await save.click();
    await expect(dashboard.getByRole('alert')).toContainText('many');
  });

  await test.step('a limit is set after a question, and holds', async () => {
    await limit.fill('0.5');
    await save.click();
    const question = page.getByRole('dialog');
    await expect(question).toContainText('Change project default?');
    await question.getByRole('button', { name: 'Change' }).click();
    await expect(question).toBeHidden();
    await expect(limit).toHaveValue('0.5');
    await expect(save).toBeDisabled();
    await expect(
      stack.gpupool('lease', 'request', '-p', '0.6')
    ).rejects.toThrow();
    await limit.fill('');
    await limit.press('Enter');
    await question.getByRole('button', { name: 'Change' }).click();
    await expect(limit).toHaveAttribute('placeholder', 'none');
    await expect(save).toBeDisabled();
  });

  await test.step('a drained node says why, and takes leases again', async () => {
    await dashboard.getByRole('button', { name: `Drain node ${node}` }).click();
    const question = page.getByRole('dialog');
    await question.getByRole('textbox', { name: 'Reason' }).fill('new fans');
    await question.getByRole('button', { name: 'Drain' }).click();
    const state = dashboard
      .getByRole('row', { name: new RegExp(`^${node} `) })
      .getByRole('cell')
      .first();
    await expect(state).toHaveText('drained: new fans');
    await expect(
      stack.gpupool('lease', 'request', '-p', '0.1')
    ).rejects.toThrow();
    await dashboard
      .getByRole('button', { name: `Let node ${node} take leases again` })
      .click();
    await expect(state).toHaveText('takes leases');
    await stack.gpupool(
      'lease',
      'release',
      await stack.gpupool('lease', 'request', '-p', '0.1')
    );
  });
});

test.describe('Notebook 7', () => {
  test.use({ application: 'Notebook 7' });

  test('the dashboard opens in a tab of JupyterLab', async ({
    gpu,
    page,
    stack
  }) => {
    stack.writeNotebook(NOTEBOOK, ADD);
    await gpu.open(NOTEBOOK);
    const opened = page.context().waitForEvent('page');
    await gpu.choose('GPU Dashboard');
    const tab = await opened;
    await expect(tab).toHaveURL(/\/lab\?.*gpupool=cluster/);
    await expect(
      tab.getByRole('heading', { name: 'The whole pool' })
    ).toBeVisible({ timeout: 60_000 });
    await tab.close();
  });
});
