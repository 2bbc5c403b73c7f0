import { findFreePort } from './free-ports.ts';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { monitoringFolder } from './monitoring.ts';
import { waitFor } from './wait.ts';

/** A sample of a response: its labels, and its value as text. */
export interface Sample {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: readonly [number, string];
}

/** A running Prometheus. */
export interface Prometheus {
  /** Evaluates a query now. Throws Prometheus's error for an invalid query. */
  query(text: string): Promise<readonly Sample[]>;
  /** Returns the names of the alerts that fire now. */
  firing(): Promise<readonly string[]>;
}

/**
 * Starts Prometheus with docs/monitoring, except for the target and the interval: the operator's address of a service,
 * each second. The end of the running test ends it.
 */
export async function startPrometheus(programs: string, folder: string, ops: string): Promise<Prometheus> {
  mkdirSync(folder, { recursive: true });
  const settings = readFileSync(path.join(monitoringFolder, 'prometheus.yml'), 'utf8');
  const own = settings.replaceAll(/interval: 15s/g, 'interval: 1s').replace('127.0.0.1:8082', new URL(ops).host);
  writeFileSync(path.join(folder, 'prometheus.yml'), own);
  copyFileSync(path.join(monitoringFolder, 'alerts.yml'), path.join(folder, 'alerts.yml'));
  const url = `127.0.0.1:${await findFreePort()}`;
  const words = [
    `--config.file=${path.join(folder, 'prometheus.yml')}`,
    `--storage.tsdb.path=${path.join(folder, 'data')}`,
    `--web.listen-address=${url}`,
    '--log.level=error',
  ];
  const child = spawn(path.join(programs, 'prometheus'), words, { stdio: ['ignore', 'ignore', 'inherit'] });
  const exited = once(child, 'exit');
  onTestFinished(async () => {
    child.kill('SIGTERM');
    await exited;
  });
  await waitFor('Prometheus is ready', async () => {
    const answer = await fetch(`http://${url}/-/ready`).catch(() => undefined);
    return answer?.ok === true;
  });

  const ask = async <T>(target: string): Promise<T> => {
    const answer = (await (await fetch(`http://${url}/api/v1/${target}`)).json()) as {
      readonly data?: T;
      readonly error?: string;
    };
    if (answer.data === undefined) throw new Error(answer.error);
    return answer.data;
  };
  return {
    async query(text) {
      const { result } = await ask<{ readonly result: readonly Sample[] }>(`query?query=${encodeURIComponent(text)}`);
      return result;
    },
    async firing() {
      const { alerts } = await ask<{
        readonly alerts: readonly { readonly state: string; readonly labels: Readonly<Record<string, string>> }[];
      }>('alerts');
      return alerts.filter(({ state }) => state === 'firing').map(({ labels }) => labels['alertname'] ?? '');
    },
  };
}
