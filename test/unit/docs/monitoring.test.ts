import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../../src/runtime/files/package-files.ts';
import { readAlerts, readBoardQueries, readBoards } from '../../helpers/monitoring.ts';

const read = (file: string): string => readFileSync(path.join(packageRoot, file), 'utf8');
const sources = readdirSync(path.join(packageRoot, 'src'), { recursive: true })
  .map(String)
  .filter((name) => name.endsWith('.ts'))
  .map((name) => read(`src/${name}`))
  .join('\n');
const made = /\.(?:counter|tally|gauge|readGauge|histogram)(?:<[^>]*>)?\(\s*'(\w+)'/g;
const metrics = [...sources.matchAll(made)].map(([, name]) => `tributary_${name}`).toSorted();

/** Lists the code in the first cells of the tables below a heading of docs/watch.md. */
function listCells(heading: string): readonly string[] {
  const page = read('docs/watch.md');
  const [section = ''] = page.slice(page.indexOf(`\n## ${heading}\n`) + 1).split(/\n(?=## )/);
  const cells = section.split('\n').flatMap((line) => /^\| (`.*?) \|/.exec(line)?.[1] ?? []);
  return cells.flatMap((cell) => [...cell.matchAll(/`(\w+)`/gi)].map(([, name = '']) => name));
}

test('The page docs/watch.md has the action of every alert, and promtool has a case in which it fires and one in which it does not', () => {
  const alerts = readAlerts().map(({ alert }) => alert);
  expect(listCells('Alerts').toSorted()).toEqual(alerts.toSorted());
  const cases = [...read('docs/monitoring/alerts.test.yml').matchAll(/^ {2}- name: (.*)$/gm)].map(
    ([, name = '']) => name,
  );
  expect(cases.toSorted()).toEqual(alerts.flatMap((alert) => [`${alert} fires`, `${alert} is quiet`]).toSorted());
});

test('Rules and boards name no metric that the service does not have', () => {
  const queries = [...readAlerts().map(({ expr }) => expr), ...readBoardQueries()];
  const named = queries.flatMap((query) => query.match(/\btributary_\w+/g) ?? []);
  const known = new Set(
    metrics.flatMap((name) => [name, ...['bucket', 'sum', 'count'].map((end) => `${name}_${end}`)]),
  );
  expect(named.length).toBeGreaterThan(40);
  expect(named.filter((name) => !known.has(name))).toEqual([]);
});

const boards = readBoards();

test('There is a board for one machine and one for several hosts', () => {
  expect([...boards.keys()].toSorted()).toEqual(['grafana-hosts.json', 'grafana.json']);
});

test.each([...boards])(
  'The panels of %s do not overlap, and each has a unique id and the data source that its reader selects',
  (_file, panels) => {
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
    const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, index) => `${x + (index % w)} ${y + Math.floor(index / w)}`),
    );
    expect(new Set(cells).size).toBe(cells.length);
    const chosen = panels.filter(({ type }) => type !== 'row').map(({ datasource }) => datasource?.uid);
    expect(new Set(chosen)).toEqual(new Set(['${datasource}']));
  },
);
