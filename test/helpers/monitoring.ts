import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/runtime/files/package-files.ts';

/** Configuration of Prometheus and Grafana, from the files of docs/monitoring. */

export const monitoringFolder = path.join(packageRoot, 'docs/monitoring');

const read = (file: string): string => readFileSync(path.join(monitoringFolder, file), 'utf8');

export interface Alert {
  readonly alert: string;
  readonly expr: string;
}

export function readAlerts(): readonly Alert[] {
  return [...read('alerts.yml').matchAll(/^ {6}- alert: (\w+)\n {8}expr: (.*)$/gm)].map(
    ([, alert = '', expr = '']) => ({ alert, expr }),
  );
}

export interface Panel {
  readonly id: number;
  readonly type: string;
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
  readonly datasource?: { readonly uid: string };
  readonly targets?: readonly { readonly expr: string }[];
}

/** Reads the panels of each board by its file. */
export function readBoards(): ReadonlyMap<string, readonly Panel[]> {
  const files = readdirSync(monitoringFolder).filter((name) => name.endsWith('.json'));
  return new Map(files.map((name) => [name, (JSON.parse(read(name)) as { readonly panels: readonly Panel[] }).panels]));
}

/** Reads the queries of the boards, for every instance, over the last minute. */
export function readBoardQueries(): readonly string[] {
  return [...readBoards().values()]
    .flat()
    .flatMap(({ targets = [] }) => targets.map(({ expr }) => expr))
    .map((query) => query.replaceAll('$instance', '.*').replaceAll('$__rate_interval', '1m'));
}
