import { waitFor } from '@testing-library/dom';
import type { GpuPool } from '../../api/types';
import usage from '../../widget/usage';
import type { IWidgetModel } from '../../widget/widgetModel';
import { aKernel, anAttachedKernel, aRelease, aSample } from '../samples';
import { everythingIsSeen } from '../seen';

const SERVER = JSON.stringify({ baseUrl: '/base', token: 't' });

/** The Python half of the widget, as a page sees it. */
class Model implements IWidgetModel {
  get(name: string): unknown {
    return { kernel_id: 'k1', summary: 'state: none', taken_at: 1.8e9 }[name];
  }
  on(_: string, listener: () => void): void {
    this.listeners.push(listener);
  }
  off(_: string, listener: () => void): void {
    this.listeners = this.listeners.filter(one => one !== listener);
  }
  send(content: object): void {
    this.sent.push(content);
  }
  listeners: (() => void)[] = [];
  sent: object[] = [];
}

function anAnswer(part: Partial<GpuPool.IUsageAnswer>): object {
  return { ...aKernel(), software: true, samples: [], ...part };
}

let el: HTMLElement;
let answers: { status: number; body: object }[];
const fetched = jest.fn();

beforeEach(() => {
  fetched.mockReset();
  answers = [];
  el = document.body.appendChild(document.createElement('div'));
  Object.assign(globalThis, {
    fetch: async (url: string, init: RequestInit) => {
      fetched(url, init.method, init.body);
      const { status, body } =
        answers.length > 1 ? answers.shift()! : answers[0];
      return new Response(JSON.stringify(body), { status });
    }
  });
  everythingIsSeen();
});

afterEach(() => {
  document.getElementById('jupyter-config-data')?.remove();
  el.remove();
});

function fromServer(): void {
  const config = document.createElement('script');
  config.id = 'jupyter-config-data';
  config.type = 'application/json';
  config.textContent = SERVER;
  document.head.append(config);
}

/** Waits until an answer has arrived and a frame was drawn. */
const shows = (part: string) =>
  waitFor(() => expect(el.textContent).toContain(part));

const text = (name: string) =>
  el.querySelector(`.jp-GpuUsage-${name}`)?.textContent;

function press(label: string): void {
  [...el.querySelectorAll('button')]
    .find(button => button.textContent === label && !button.hidden)!
    .click();
}

it('shows what the server says of the kernel', async () => {
  fromServer();
  const { share, usage: used } = anAttachedKernel();
  answers = [
    {
      status: 200,
      body: anAnswer({
        state: 'attached',
        held: true,
        session_id: 's1',
        share,
        usage: used,
        samples: [aSample({ t: 100, utilization: 0.4 })]
      })
    }
  ];
  const end = usage.render({ model: new Model(), el });
  await shows('attached');
  expect(fetched).toHaveBeenCalledWith(
    '/base/gpupool/api/kernels/k1/usage?since=0',
    'GET',
    undefined
  );
  expect(text('state')).toBe('attached');
  expect(text('share')).toMatch(/^software GPU · 0\.2 GPU/);
  const [compute, memory] = el.querySelectorAll('[role=meter]');
  expect(compute.getAttribute('aria-valuetext')).toBe('40 %');
  expect(memory.getAttribute('aria-valuetext')).toMatch(/^300 MiB of 1\.5 GiB/);
  expect(el.querySelector('canvas')!.getAttribute('aria-label')).toMatch(
    /^GPU use over the last five minutes, 40 % on average/
  );
  end();
  expect(el.children).toHaveLength(0);
});

it('says of a page in place of an answer that one has to log in', async () => {
  fromServer();
  Object.assign(globalThis, { fetch: async () => new Response('<html>') });
  const end = usage.render({ model: new Model(), el });
  await shows('reload the page to log in');
  expect(text('message')).toBe(
    'What came is no answer of the Jupyter server: reload the page to log in.'
  );
  end();
});

it('attaches, and says what was refused', async () => {
  fromServer();
  answers = [
    { status: 200, body: anAnswer({}) },
    { status: 409, body: { message: 'All is lent.', reason: 'full' } }
  ];
  const end = usage.render({ model: new Model(), el });
  await shows('no GPU attached');
  expect(text('state')).toBe('no GPU attached');
  press('Attach');
  await shows('All is lent.');
  expect(fetched).toHaveBeenLastCalledWith(
    '/base/gpupool/api/kernels/k1/attach',
    'POST',
    '{}'
  );
  expect(text('message')).toBe('All is lent.');
  end();
});

it('says of a kernel that holds nothing until when its chart goes', async () => {
  fromServer();
  const t = new Date(2026, 10, 30, 10, 0).getTime() / 1000;
  const samples = [aSample({ t, utilization: 0.5 })];
  answers = [
    {
      status: 200,
      body: anAnswer({ state: 'parked', session_id: 's1', samples })
    }
  ];
  const end = usage.render({ model: new Model(), el });
  await shows('memory kept');
  const covered = `five minutes until ${new Date(1000 * t).toLocaleTimeString()}`;
  expect(text('traffic')).toBe(covered);
  expect(el.querySelector('canvas')!.getAttribute('aria-label')).toBe(
    `GPU use over the ${covered}, 50 % on average`
  );
  end();
});

it('attaches what was released, for the project that it was of', async () => {
  fromServer();
  const released = aRelease();
  answers = [
    { status: 200, body: anAnswer({ released, project: 'vision' }) },
    { status: 200, body: anAnswer({ state: 'attached', held: true }) }
  ];
  const end = usage.render({ model: new Model(), el });
  await shows('Attach 0.2');
  press('Attach 0.2');
  await shows('attached');
  expect(fetched).toHaveBeenCalledWith(
    '/base/gpupool/api/kernels/k1/attach',
    'POST',
    JSON.stringify({ share: '0.2', count: 1, project: 'vision' })
  );
  end();
});

it('says why a share that was detached is still held', async () => {
  fromServer();
  const held = { state: 'attached', held: true, session_id: 's1' } as const;
  const message = 'Running code still uses the GPU.';
  answers = [
    { status: 200, body: anAnswer(held) },
    { status: 200, body: anAnswer({ ...held, message }) }
  ];
  const end = usage.render({ model: new Model(), el });
  await shows('attached');
  press('Detach');
  await shows(message);
  expect(text('message')).toBe(message);
  end();
});

it('takes the GPU from a cell that runs only when it is pressed once more', async () => {
  fromServer();
  const held = { state: 'attached', held: true, session_id: 's1' } as const;
  const message = 'A cell of this kernel is running.';
  answers = [
    { status: 200, body: anAnswer(held) },
    { status: 409, body: { message, reason: 'running' } },
    { status: 200, body: anAnswer(held) },
    { status: 200, body: anAnswer({ state: 'parked', session_id: 's1' }) }
  ];
  const end = usage.render({ model: new Model(), el });
  await shows('attached');
  press('Detach');
  await shows(message);
  const [, , body] = fetched.mock.calls[1];
  expect(body).toBe('{}');
  press('Detach anyway');
  await shows('memory kept');
  expect(fetched).toHaveBeenCalledWith(
    '/base/gpupool/api/kernels/k1/detach',
    'POST',
    '{"force":true}'
  );
  end();
});

it('keeps the focus of whoever presses a button by key', async () => {
  fromServer();
  const held = { state: 'attached', held: true, session_id: 's1' } as const;
  answers = [
    { status: 200, body: anAnswer(held) },
    { status: 200, body: anAnswer({ state: 'parked', session_id: 's1' }) }
  ];
  const end = usage.render({ model: new Model(), el });
  await shows('attached');
  [...el.querySelectorAll('button')]
    .find(button => button.textContent === 'Detach')!
    .focus();
  press('Detach');
  expect(document.activeElement!.textContent).toBe('Detach');
  expect(document.activeElement!.getAttribute('aria-disabled')).toBe('true');
  await shows('memory kept');
  expect(document.activeElement!.textContent).toBe('Attach');
  end();
});

it('shows the last text when the kernel is gone', async () => {
  fromServer();
  answers = [{ status: 404, body: { message: 'There is no kernel k1.' } }];
  const end = usage.render({ model: new Model(), el });
  await shows('There is no kernel k1.');
  expect(el.textContent).toContain('state: none');
  expect(el.textContent).toContain('There is no kernel k1.');
  end();
});

it('asks the kernel where there is no server, on a click only', async () => {
  const model = new Model();
  const end = usage.render({ model, el });
  await new Promise(done => setTimeout(done, 50));
  expect(fetched).not.toHaveBeenCalled();
  expect(el.textContent).toContain('state: none');
  expect(model.sent).toEqual([]);
  press('Refresh');
  expect(model.sent).toEqual([{ type: 'refresh' }]);
  end();
  expect(model.listeners).toEqual([]);
  expect(el.children).toHaveLength(0);
});
