// "Boot from snapshot (VirtMan)": one more source of Launch Instance, without a change of Horizon.
//
//   launchInstanceModel  offers the source if the user may have it, and asks for the servers
//   nova service         makes the request's root disk one of VirtMan's type
//   source controller    shows the table of volume snapshots for it
//   workflow             the step "Source" says what the servers will need

(function () {
  "use strict";

  const SOURCE = "virtman";
  const SNAPSHOT = "volume_snapshot";
  const LAUNCH = "horizon.dashboard.project.workflow.launch-instance";
  const API = "horizon.app.core.openstack-service-api";
  const HTTP = "horizon.framework.util.http.service";

  angular
    .module("virtman.launch", [LAUNCH])
    .config(["$provide", decorate])
    .directive("ngController", () => ({ restrict: "A", link: showSnapshots }))
    .component("virtmanNeeds", {
      bindings: { model: "<" },
      controller: Needs,
      templateUrl: ["$window", ($window) => `${$window.STATIC_URL}virtman/needs.html`],
    });

  function decorate($provide) {
    $provide.decorator("launchInstanceModel", [
      "$delegate", "$q", HTTP, `${API}.settings`, decorateModel,
    ]);
    $provide.decorator(`${API}.nova`, ["$delegate", HTTP, decorateNova]);
    $provide.decorator(`${LAUNCH}.workflow`, ["$delegate", "$window", decorateWorkflow]);
  }

  function decorateModel(model, $q, http, settings) {
    const initialize = model.initialize;
    const createInstance = model.createInstance;
    let offer = { offered: false };

    model.initialize = function (deep) {
      const asked = $q.all({
        // Nobody has to be told that this fails: there is just one source less.
        offer: http.get("/api/virtman/launch/"),
        byDefault: settings.getSetting("DEFAULT_BOOT_SOURCE"),
        defaults: settings.getSetting("LAUNCH_INSTANCE_DEFAULTS"),
      });
      return $q.all([initialize(deep), asked.then(add, angular.noop)]);
    };

    model.createInstance = function () {
      const spec = model.newInstanceSpec;
      if (spec.source_type.type !== SOURCE) return createInstance();
      // The request is made of a copy, before this returns: the user's choice can come back then.
      const { source_type: chosen, vol_delete_on_instance_delete: kept } = spec;
      Object.assign(spec, {
        source_type: { type: SNAPSHOT },
        vol_delete_on_instance_delete: true,
        virtman_volume_type: offer.volume_type,
      });
      try {
        return createInstance();
      } finally {
        Object.assign(spec, { source_type: chosen, vol_delete_on_instance_delete: kept });
        delete spec.virtman_volume_type;
      }
    };
    return model;

    function add({ offer: answer, byDefault, defaults }) {
      offer = answer.data;
      model.virtmanFree = offer.free; // GiB, or null
      const isThere = model.allowedBootSources.some(({ type }) => type === SOURCE);
      if (!offer.offered || isThere || defaults?.disable_volume_snapshot) return;
      model.allowedBootSources.push({
        type: SOURCE,
        label: gettext("Boot from snapshot (VirtMan)"),
        selected: byDefault === SOURCE,
      });
    }
  }

  function decorateNova(nova, http) {
    const createServer = nova.createServer;
    nova.createServer = function ({ virtman_volume_type: type, ...server }) {
      if (!type) return createServer(server);
      server.block_device_mapping_v2[0].volume_type = type;
      // Horizon's own would hide why Nova refuses, and say that the servers are scheduled.
      return http.post("/api/nova/servers/", server);
    };
    return nova;
  }

  // The controller knows four types and has a table for each; ours is that of volume snapshots.
  function showSnapshots(scope, element, { ngController }) {
    if (!ngController.startsWith("LaunchInstanceSourceController")) return;
    const { ctrl } = scope;
    const update = ctrl.updateBootSourceSelection;
    ctrl.updateBootSourceSelection = function (type, selection) {
      // Whenever a list of sources arrives, Horizon chooses what has this mark.
      for (const source of scope.model.allowedBootSources) source.selected = source.type === type;
      update(type === SOURCE ? SNAPSHOT : type, selection);
    };
    // The search box takes Tab for itself, and nobody would get to the snapshots with a keyboard.
    element[0].addEventListener("keydown", (event) => {
      if (event.key === "Tab" && event.target.closest(".magic-search")) event.stopPropagation();
    }, true);
    // It chooses the default source by itself.
    scope.$watch(() => ctrl.currentBootSource, (type) => {
      if (type === SOURCE) update(SNAPSHOT);
    });
  }

  // Horizon's own page of the step becomes a part of ours.
  function decorateWorkflow(workflow, $window) {
    const step = workflow.steps.find(({ id }) => id === "source");
    step.stockTemplateUrl = step.templateUrl;
    step.templateUrl = `${$window.STATIC_URL}virtman/source.html`;
    return workflow;
  }

  function Needs() {
    const ctrl = this;
    const spec = () => ctrl.model.newInstanceSpec;
    ctrl.isShown = () => spec().source_type?.type === SOURCE;
    ctrl.count = () => spec().instance_count || 0;
    ctrl.used = () => ctrl.model.novaLimits.totalInstancesUsed + ctrl.count();
    ctrl.most = () => ctrl.model.novaLimits.maxTotalInstances;
    ctrl.isLimited = () => Number.isFinite(ctrl.most());
    ctrl.isOver = () => ctrl.isLimited() && ctrl.used() > ctrl.most();
    ctrl.size = () => spec().source[0]?.size;
    ctrl.space = () => ctrl.count() * ctrl.size();
    ctrl.free = () => ctrl.model.virtmanFree ?? null;
    ctrl.isFull = () => ctrl.free() !== null && ctrl.space() > ctrl.free();
  }
})();
