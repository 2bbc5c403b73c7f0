/** A kind of imported event, as its line and the `kind` column of the events have it: one of `importKinds` (dataset.ts). */
export type EventKind = string;

/** Path name of an import method (service.md 4.1, 4.2): one of `importMethods` (dataset.ts). */
export type ImportMethod = string;

/** The platforms an app can be on; they decide who an event is about, and which defaults apply. */
export const platforms = ['mobile-a', 'mobile-b', 'web', 'mini-app', 'game'] as const;
export type Platform = (typeof platforms)[number];
