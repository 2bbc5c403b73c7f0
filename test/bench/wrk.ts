import { execFile, spawnSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { testFolder } from '../helpers/folder.ts';
import { renderRequest, runHttpLoad, type LoadPlan, type LoadResult } from './http-load.ts';

const script = path.join(import.meta.dirname, 'wrk.lua');

/** The line that wrk.lua prints. */
interface WrkFigures {
  readonly requests: number;
  readonly seconds: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly refused: number;
  readonly broken: number;
  readonly cpuSeconds: number;
}

/** Name of the load generator, reported with its figures: it competes with the server for the processor. */
export const loadName = spawnSync('wrk', ['-v']).error === undefined ? 'wrk' : 'own load (no wrk: apt install wrk)';

async function callWrk({ address, connections }: LoadPlan, file: string, seconds: number): Promise<WrkFigures> {
  const words = [
    '-t1',
    `-c${connections}`,
    `-d${seconds}s`,
    '--timeout',
    '10s',
    '-s',
    script,
    address.href,
    '--',
    file,
  ];
  const { stdout } = await promisify(execFile)('wrk', words);
  return JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as WrkFigures;
}

async function runWrk(plan: LoadPlan): Promise<LoadResult> {
  const file = path.join(testFolder(), 'requests');
  const requests = [plan.body].flat().map((body) => renderRequest(plan, body));
  await writeFile(file, Buffer.concat(requests.flatMap((request) => [Buffer.from(`${request.length}\n`), request])));
  await callWrk(plan, file, Math.ceil(plan.warmUpMs / 1000));
  plan.onMeasure?.();
  const figures = await callWrk(plan, file, Math.ceil(plan.measureMs / 1000));
  const { p50Ms, p99Ms, refused, broken } = figures;
  const failed = refused + broken;
  return {
    requests: figures.requests,
    requestsPerSecond: figures.requests / figures.seconds,
    p50Ms,
    p99Ms,
    statuses: { 200: figures.requests - refused, ...(failed > 0 && { failed }) },
    loadSeconds: figures.cpuSeconds,
  };
}

/**
 * Sends load to one address with wrk, at a few microseconds per request; without wrk, with this benchmark's own load.
 */
export const runLoad: (plan: LoadPlan) => Promise<LoadResult> = loadName === 'wrk' ? runWrk : runHttpLoad;
