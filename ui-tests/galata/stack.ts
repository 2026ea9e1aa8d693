import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';

const ROOT = resolve(__dirname, '..', '..');
const PYTHON =
  process.env.GPUPOOL_TEST_PYTHON ?? join(ROOT, '.venv/bin/python');
/** Five processes start, on a machine that may be busy, ms. */
const START_MS = 120_000;
/** A notebook is written, likewise. */
const WRITE_MS = 20_000;

interface IStarted {
  url: string;
  token: string;
  folder: string;
  environment: Record<string, string>;
}

/** What `GET gpupool/api/kernels` tells of one kernel, as far as tests look at it. */
export interface IKernelOfServer {
  kernel_id: string;
  label: string;
  state: string;
  idle: { choice_minutes: number | null } | null;
}

/** The running product: what `make lab` starts, on a folder of notebooks of its own. */
export class Stack {
  private constructor(
    private readonly _process: ChildProcessByStdio<Writable, Readable, null>,
    private readonly _started: IStarted
  ) {}

  /** Starts `ui-tests/stack.py` with options of `gpupool lab`; it ends when this process does. */
  static async start(...options: string[]): Promise<Stack> {
    const child = spawn(PYTHON, [join(ROOT, 'ui-tests/stack.py'), ...options], {
      cwd: ROOT,
      stdio: ['pipe', 'pipe', 'inherit']
    });
    const started = await new Promise<IStarted>((found, failed) => {
      const timer = setTimeout(
        () => failed(new Error(`no stack within ${START_MS} ms`)),
        START_MS
      );
      createInterface(child.stdout).once('line', line => {
        clearTimeout(timer);
        found(JSON.parse(line) as IStarted);
      });
      child.once('error', failed);
      child.once('exit', code =>
        failed(new Error(`the stack ended with ${code}`))
      );
    });
    return new Stack(child, started);
  }

  async stop(): Promise<void> {
    const ended = new Promise(resolved => this._process.once('exit', resolved));
    this._process.stdin.end();
    await ended;
  }

  get url(): string {
    return this._started.url;
  }

  /** For a user who is logged in; a cookie of this answer is what a browser has afterwards. */
  get login(): string {
    return `${this.url}/api/status?token=${this._started.token}`;
  }

  get headers(): Record<string, string> {
    return { Authorization: `token ${this._started.token}` };
  }

  /** A notebook of code cells for the `python3` kernel. */
  writeNotebook(name: string, ...cells: string[]): void {
    const notebook = {
      cells: cells.map((source, number) => ({
        cell_type: 'code',
        id: `cell-${number}`,
        metadata: {},
        source,
        outputs: [],
        execution_count: null
      })),
      metadata: {
        kernelspec: {
          name: 'python3',
          display_name: 'Python 3 (ipykernel)',
          language: 'python'
        }
      },
      nbformat: 4,
      nbformat_minor: 5
    };
    writeFileSync(join(this._started.folder, name), JSON.stringify(notebook));
  }

  /** What is on disk of a notebook now. While Jupyter writes it, that is not yet a notebook. */
  async readNotebook(name: string): Promise<{
    metadata: Record<string, unknown>;
    cells: { outputs: { data?: Record<string, unknown> }[] }[];
  }> {
    const path = join(this._started.folder, name);
    for (const began = Date.now(); ; await sleep(50)) {
      try {
        return JSON.parse(readFileSync(path, 'utf8'));
      } catch (error) {
        if (Date.now() - began > WRITE_MS) {
          throw error;
        }
      }
    }
  }

  /** A request to the Jupyter server; the decoded JSON. Rejects with its answer when it refuses. */
  async api<T>(method: string, path: string, body?: object): Promise<T> {
    const answer = await fetch(`${this.url}/${path}`, {
      method,
      headers: { ...this.headers, 'Content-Type': 'application/json' },
      body: body === undefined ? undefined : JSON.stringify(body)
    });
    const text = await answer.text();
    if (!answer.ok) {
      throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    }
    return (text === '' ? null : JSON.parse(text)) as T;
  }

  /** `gpupool …` as somebody else on the machine would type it; what it printed. */
  async gpupool(...words: string[]): Promise<string> {
    const child = spawn(PYTHON, ['-m', 'gpupool.cli.main', ...words], {
      cwd: ROOT,
      env: this._started.environment,
      stdio: ['ignore', 'pipe', 'inherit']
    });
    let printed = '';
    child.stdout.on('data', chunk => (printed += chunk));
    const code = await new Promise(resolved => child.once('close', resolved));
    if (code !== 0) {
      throw new Error(`gpupool ${words.join(' ')} ended with ${code}`);
    }
    return printed.trim();
  }

  async kernels(): Promise<IKernelOfServer[]> {
    const answer = await this.api<{ kernels: IKernelOfServer[] }>(
      'GET',
      'gpupool/api/kernels'
    );
    return answer.kernels;
  }

  async freeMilli(): Promise<number> {
    return (await this._totals()).free_milli;
  }

  private async _totals(): Promise<{ milli: number; free_milli: number }> {
    const pool = await this.api<{
      totals: { milli: number; free_milli: number };
    }>('GET', 'gpupool/api/pool');
    return pool.totals;
  }

  /** A kernel of somebody without a notebook, with so much of a device. */
  async holdElsewhere(share: string): Promise<string> {
    const { id } = await this.api<{ id: string }>('POST', 'api/kernels', {
      name: 'python3'
    });
    await this.api('POST', `gpupool/api/kernels/${id}/attach`, { share });
    return id;
  }

  /** Ends every kernel and waits until the pool has all shares back. */
  async shutKernelsDown(): Promise<void> {
    for (const { id } of await this.api<{ id: string }[]>(
      'GET',
      'api/kernels'
    )) {
      await this.api('DELETE', `api/kernels/${id}`);
    }
    const deadline = Date.now() + 35_000;
    const isWhole = async () => {
      const { milli, free_milli } = await this._totals();
      return milli > 0 && milli === free_milli;
    };
    while (!(await isWhole())) {
      if (Date.now() > deadline) {
        throw new Error('waited 35 s for every share to be free');
      }
      await new Promise(resolved => setTimeout(resolved, 200));
    }
  }
}
