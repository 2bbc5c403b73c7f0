import { readFileSync } from 'node:fs';
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

/** Reads the queries of the board, for every instance, over the last minute. */
export function readBoardQueries(): readonly string[] {
  const { panels } = JSON.parse(read('grafana.json')) as {
    readonly panels: readonly { readonly targets?: readonly { readonly expr: string }[] }[];
  };
  return panels
    .flatMap(({ targets = [] }) => targets.map(({ expr }) => expr))
    .map((query) => query.replaceAll('$instance', '.*').replaceAll('$__rate_interval', '1m'));
}
