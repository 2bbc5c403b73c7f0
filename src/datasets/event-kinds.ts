import { eventsPipeline, type ImportMethodSpec } from './pipeline-file.ts';

/** A kind of imported event, as the `kind` column has it. */
export type EventKind = string;
/** The kinds of imported event, in the pipeline's order. */
export const eventKinds: readonly EventKind[] = Object.keys(eventsPipeline.kinds);

/** Path name of an import method (service.md 4.1, 4.2). */
export type ImportMethod = string;
/** The import methods, single and batch, and the kind each imports. */
export const importMethods: ReadonlyMap<ImportMethod, ImportMethodSpec> = new Map(
  Object.entries(eventsPipeline.methods),
);

/** The method of a name. Throws for a name that is none. */
export function getMethod(method: ImportMethod): ImportMethodSpec {
  const spec = importMethods.get(method);
  if (spec === undefined) throw new Error(`${method} is no import method`);
  return spec;
}

/** The platforms an app can be on; they decide who an event is about, and which defaults apply. */
export const platforms = ['mobile-a', 'mobile-b', 'web', 'mini-app', 'game'] as const;
export type Platform = (typeof platforms)[number];
