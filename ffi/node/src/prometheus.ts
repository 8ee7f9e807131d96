/**
 * A gate's metrics for prom-client.
 *
 *     import { register } from "prom-client";
 *     import { CallgateCollector } from "callgate/prometheus";
 *     new CallgateCollector(gate).register(register);
 *
 * `metricsHandler` serves the same without it.
 */
import type { Gate } from "./gate.js";
import { checkedGates, type Family, familiesOf } from "./metrics.js";

/** What of a registry of prom-client is used: `register`, or `new Registry()`. */
export interface MetricRegistry {
  registerMetric(metric: never): void;
}

/** A metric as a registry of prom-client takes it. */
class GateMetric {
  /** In the text of Prometheus a counter's name ends so; in that of OpenMetrics a registry cuts it. */
  name: string;
  readonly help: string;
  readonly type: Family["kind"];
  readonly aggregator = "sum";
  readonly #collect: () => Family;

  constructor({ name, help, kind }: Family, collect: () => Family) {
    this.name = kind === "counter" ? `${name}_total` : name;
    this.help = `${help}.`;
    this.type = kind;
    this.#collect = collect;
  }

  get(): Promise<object> {
    const values = this.#collect().samples.map(([labels, value]) => ({ labels, value }));
    const { name, help, type, aggregator } = this;
    return Promise.resolve({ name, help, type, aggregator, values });
  }

  /** A registry may ask for it; nothing is kept here that could be reset. */
  reset(): void {}
}

/**
 * Collects the metrics of one or more gates, when they are scraped. Where there are several, the
 * label `gate` is their place among the arguments. A gate that is closed makes the scrape fail.
 */
export class CallgateCollector {
  readonly #gates: readonly Gate[];
  #families: readonly Family[] | undefined;

  constructor(...gates: Gate[]) {
    this.#gates = checkedGates("CallgateCollector", gates);
  }

  /** Registers the metrics. Throws where the registry has metrics of these names already. */
  register(registry: MetricRegistry): void {
    familiesOf([]).forEach((family, n) => {
      const metric = new GateMetric(family, () => this.#collect()[n] as Family);
      registry.registerMetric(metric as never);
    });
  }

  /** All metrics as they are now: a scrape asks for one after the other, and walks the table once. */
  #collect(): readonly Family[] {
    if (this.#families === undefined) {
      this.#families = familiesOf(this.#gates);
      queueMicrotask(() => (this.#families = undefined));
    }
    return this.#families;
  }
}
