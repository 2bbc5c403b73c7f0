import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import path from 'node:path';
import { pino } from 'pino';
import { expect, it, onTestFinished, vi } from 'vitest';
import { parseConfig } from '../../../src/config.ts';
import type * as Ports from '../../../src/runtime/http/ports.ts';
import { startService } from '../../../src/service.ts';
import { testFolder } from '../../helpers/folder.ts';

/** The port that another program takes between its choice and the process that is to listen on it. */
let takenPort: number | undefined;

vi.mock('../../../src/runtime/http/ports.ts', async (importOriginal) => {
  const original = await importOriginal<typeof Ports>();
  return {
    ...original,
    async settlePorts(...args: Parameters<typeof Ports.settlePorts>): Promise<number[]> {
      const ports = await original.settlePorts(...args);
      if (takenPort === undefined) return ports;
      const chosen = [takenPort, ...ports.slice(1)];
      takenPort = undefined;
      return chosen;
    },
  };
});

const entry = path.resolve(import.meta.dirname, '../../../dist/main.js');

it('A free port that another program takes before it is listened on is replaced by another free port', async () => {
  const other = createServer().listen(0, '127.0.0.1');
  await once(other, 'listening');
  onTestFinished(() => void other.close());
  takenPort = (other.address() as AddressInfo).port;
  const dataDir = path.join(testFolder(), 'data');
  const environment = { ...process.env, TRIBUTARY_DATA_DIR: dataDir, TRIBUTARY_API_PORT: '0' };
  const lines: string[] = [];
  const logger = pino({ base: null }, { write: (line: string) => void lines.push(line) });
  const service = await startService({
    config: parseConfig(environment),
    roles: ['export'],
    entry,
    environment,
    logger,
  });
  onTestFinished(() => service.stop());
  expect((await fetch(`${service.api ?? ''}/healthz`)).status).toBe(200);
  expect(lines.join('')).toContain('free port taken by another program');
});
