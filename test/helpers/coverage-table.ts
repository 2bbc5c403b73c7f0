import path from 'node:path';
import type { Reporter } from 'vitest/node';
import { formatTable } from '../../src/demo/demo-report.ts';

const measures = ['lines', 'branches', 'functions'] as const;
type Measure = (typeof measures)[number];

/** Number of lines, branches or functions: all, and those that ran. */
interface Counts {
  readonly total: number;
  readonly covered: number;
}

/** The used part of istanbul's coverage map. */
export interface CoverageMap {
  /** Absolute paths. */
  files(): readonly string[];
  fileCoverageFor(file: string): { toSummary(): { readonly data: Readonly<Record<Measure, Counts>> } };
}

/**
 * Formats the covered share in percent, truncated to one digit so that only full coverage shows 100.0; a dash if there
 * is nothing to cover.
 */
function formatShare(counts: readonly Counts[]): string {
  const sum = (member: keyof Counts): number => counts.reduce((all, count) => all + count[member], 0);
  const total = sum('total');
  return total === 0 ? '-' : `${(Math.floor((sum('covered') / total) * 1000) / 10).toFixed(1)} %`;
}

/**
 * Renders the coverage of the sources as a table: a row for each folder directly in `src`, one for the files there, and
 * one for all.
 */
export function renderCoverage(coverage: CoverageMap, sources: string): string {
  const files = coverage.files().map((file) => {
    const [folder = '', ...rest] = path.relative(sources, file).split(path.sep);
    const { data } = coverage.fileCoverageFor(file).toSummary();
    return { folder: rest.length === 0 ? 'src/*.ts' : `src/${folder}`, data };
  });
  const renderRow = (name: string, own: typeof files): string[] => {
    const shares = measures.map((measure) => formatShare(own.map(({ data }) => data[measure])));
    return [name, String(own.length), ...shares];
  };
  const folders = [...new Set(files.map(({ folder }) => folder))].toSorted();
  const rows = folders.map((name) => {
    const own = files.filter(({ folder }) => folder === name);
    return renderRow(name, own);
  });
  return formatTable(['folder', 'files', ...measures], [...rows, renderRow('all', files)]);
}

/** Creates a reporter that prints the coverage by folder at the end of a measured run (`make coverage`). */
export function createCoverageTable(sources: string): Reporter {
  let measured: CoverageMap | undefined;
  return {
    onCoverage(coverage) {
      measured = coverage as CoverageMap;
    },
    onTestRunEnd() {
      if (measured !== undefined) process.stdout.write(`\n${renderCoverage(measured, sources)}\n`);
    },
  };
}
